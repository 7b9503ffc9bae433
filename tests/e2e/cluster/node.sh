#!/usr/bin/env bash
# node.sh DIR NAME INDEX CGROUP FEATURES [KIND]: one node. Run by 'cluster' as PID 1 of the node's namespaces.
# One that has no kubeconfig in DIR stands alone: its kubelet knows static Pods only, and answers whoever is on the machine.
# KIND is of `cluster`'s CLUSTER_KINDS.
set -euo pipefail
dir=$1 name=$2 index=$3 cgroup=$4 features=${5:-} kind=${6:-}
root=$dir/$name log=$dir/log ip=198.51.100.$((10 + index)) kubeconfig=$dir/$name.kubeconfig
containerd=/run/containerd/containerd.sock state=/run/containerd kubelet_root=/var/lib/kubelet cdi=/etc/cdi cdi_folders=''
case $kind in
  read-only) cdi=/var/cdi cdi_folders='cdi_spec_dirs = ["/var/cdi/static", "/var/cdi/dynamic"]' ;;
  k3s) state=/run/k3s/containerd containerd=/run/k3s/containerd/containerd.sock ;;
  microk8s) kubelet_root=/var/snap/microk8s/common/var/lib/kubelet ;;
esac
echo "$containerd" >"$dir/containerd-$name"

# Nothing of the root can be written but /var, /run and what is mounted below. There is no /etc/cdi, and nobody can make one.
if [ "$kind" = read-only ]; then
  for folder in /var /tmp "$dir"; do mount --rbind "$folder" "$folder"; done
  mkdir -p "$root/etc"
  cp -a /etc/. "$root/etc/"
  rm -rf "$root/etc/cdi"
  mkdir -p "$root"/etc/{cni/net.d,kubernetes/manifests} /opt/cni /var/cdi
  mount --bind "$root/etc" /etc
fi
# The node's own folders, over the machine's. The kubelet's for device plugins is where it is whatever its root is.
for folder in /var/lib/kubelet /var/lib/akri /etc/cni/net.d $cdi /etc/kubernetes/manifests \
  /var/log/pods /var/log/containers /var/lib/cni /opt/cni ${kubelet_root#/var/lib/kubelet}; do
  mkdir -p "$folder" "$root$folder"
  mount --bind "$root$folder" "$folder"
done
if [ "$kind" = read-only ]; then
  mount -o remount,bind,ro /etc
  mount -o remount,bind,ro /
fi
mount --make-shared "$kubelet_root"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$state" /run/netns /run/lock /run/cdi /run/dbus
mount --make-shared /run

# Pods get 203.0.113.0/24 in eighths, a /27 for each node.
until ip route | grep -q '^default'; do sleep 0.05; done
for other in $(seq 8); do
  [ "$other" = "$index" ] || ip route add "203.0.113.$((32 * (other - 1)))/27" via "198.51.100.$((10 + other))"
done
sysctl -qw net.ipv4.ip_forward=1
cat >/etc/cni/net.d/10-bridge.conflist <<X
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "ipam": {
    "type": "host-local", "ranges": [[{"subnet": "203.0.113.$((32 * (index - 1)))/27"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
X

# The folders in which the kubelet makes its cgroups. No process of ours is in them.
make_cgroups() {
  local folder file controller
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then # version 2: one tree; a controller is handed down level by level
    mkdir -p "/sys/fs/cgroup/$cgroup/$name"
    for folder in /sys/fs/cgroup "/sys/fs/cgroup/$cgroup"; do
      tr ' ' '\n' <"$folder/cgroup.controllers" | while read -r controller; do
        echo "+$controller" >"$folder/cgroup.subtree_control" || echo "cannot hand down $controller in $folder"
      done
    done
    return
  fi
  for folder in /sys/fs/cgroup/*/; do # version 1: a tree for each controller
    case $folder in */unified/) ;; *) mkdir -p "$folder$cgroup/$name" ;; esac
  done
  for file in cpuset.cpus cpuset.mems; do # empty in a new cpuset, and then nothing may run in it
    for folder in "$cgroup" "$cgroup/$name"; do
      [ ! -e "/sys/fs/cgroup/cpuset/$file" ] || cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$folder/$file"
    done
  done
}
# As on a machine of its own, Pods as a whole have as much of the processors as all that is no Pod. In the kernel's tree
# they stand beside each single thread of two kubelets, the API server and the tests.
weigh_pods() {
  local file
  for file in "/sys/fs/cgroup/cpu/$cgroup/cpu.shares" "/sys/fs/cgroup/cpu,cpuacct/$cgroup/cpu.shares"; do
    [ ! -e "$file" ] || echo 8192 >"$file"
  done
  [ ! -e "/sys/fs/cgroup/$cgroup/cpu.weight" ] || echo 800 >"/sys/fs/cgroup/$cgroup/cpu.weight"
}

make_cgroups
weigh_pods

cat >"$root/containerd.toml" <<X
version = 3
root = "$root/containerd"
state = "$state"
[grpc]
 address = "$containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
 sandbox = "localhost/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
 restrict_oom_score_adj = true
 disable_apparmor = true
 $cdi_folders
 [plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/cni/net.d"
X
containerd -c "$root/containerd.toml" >"$log/$name-containerd.log" 2>&1 &

if [ -e "$kubeconfig" ]; then
  access="authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $dir/pki/ca.crt}}
authorization: {mode: Webhook}"
else
  access='address: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}'
fi
cat >"$root/kubelet.yaml" <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup/$name
containerRuntimeEndpoint: unix://$containerd
staticPodPath: /etc/kubernetes/manifests
$access
oomScoreAdj: 0
failSwapOn: false
clusterDNS: ["192.0.0.10"]
clusterDomain: cluster.local
imageMinimumGCAge: 24h
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}
featureGates: {$(tr ',' '\n' <<<"$features" | sed -n 's/^\([A-Za-z0-9]*\)=\(.*\)/\1: \2/p' | paste -sd,)}
${CLUSTER_KUBELET:-}
X

until ctr -a "$containerd" version >/dev/null 2>&1; do sleep 0.1; done
pause=$(mktemp -d -p "$root")
mkdir "$pause/bin"
cp "$(command -v busybox)" "$pause/bin/sleep"
"$(dirname "$0")/cluster" image localhost/pause:1 "$pause" /bin/sleep 2147483647 >"$pause.tar"
ctr -a "$containerd" -n k8s.io images import "$pause.tar" >/dev/null 2>&1
rm -r "$pause" "$pause.tar"

api_server=()
if [ -e "$kubeconfig" ]; then
  api_server=(--kubeconfig="$kubeconfig")
  kube-proxy --kubeconfig "$dir/admin.kubeconfig" --proxy-mode=iptables --hostname-override="$name" \
    --conntrack-max-per-core=0 >"$log/$name-proxy.log" 2>&1 &
fi

echo start >"$dir/kubelet-$name"
while :; do # a kubelet that ends is started again, unless it was told to stop
  if [ "$(cat "$dir/kubelet-$name")" != stop ]; then
    kubelet --config="$root/kubelet.yaml" --root-dir="$kubelet_root" "${api_server[@]}" --hostname-override="$name" \
      --node-ip="$ip" --v=2 >>"$log/$name-kubelet.log" 2>&1 &
    echo $! >"$dir/kubelet-$name.pid"
    wait $! || true
  fi
  sleep 0.2
done
