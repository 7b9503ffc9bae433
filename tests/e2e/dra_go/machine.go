package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	draplugin "k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

const (
	driverName = "fuse.example.com"
	nodeName   = "edge"
)

// machine has a folder like a node's, an API server, and what runs.
type machine struct {
	root, program string
	api           *apiServer
	client        kubernetes.Interface
	kubeconfig    string
	output        lockedBuffer
	drivers       map[string]*exec.Cmd
	kubelet       *dra.Manager
	endKubelet    context.CancelFunc
}

type lockedBuffer struct {
	mutex sync.Mutex
	bytes bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.Write(p)
}

func (m *machine) log() string {
	m.output.mutex.Lock()
	defer m.output.mutex.Unlock()
	return m.output.bytes.String()
}

func (m *machine) path(names ...string) string {
	return filepath.Join(append([]string{m.root}, names...)...)
}

func newMachine(root, program string) (*machine, error) {
	m := &machine{root: root, program: program, api: newAPIServer(), drivers: map[string]*exec.Cmd{}}
	klog.SetOutput(&m.output)
	klog.LogToStderr(false)
	for _, folder := range []string{"plugins", "plugins_registry", "cdi", "state"} {
		if err := os.Mkdir(m.path(folder), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(m.path("device"), nil, 0o644); err != nil {
		return nil, err
	}
	m.api.put("/api/v1/nodes/"+nodeName, node())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _ = http.Serve(listener, m.api) }()
	server := "http://" + listener.Addr().String()
	if m.client, err = kubernetes.NewForConfig(&rest.Config{Host: server}); err != nil {
		return nil, err
	}
	m.kubeconfig = m.path("kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
"clusters":[{"name":"a","cluster":{"server":%q}}],"users":[{"name":"a","user":{}}]}`, server)
	return m, os.WriteFile(m.kubeconfig, []byte(text), 0o600)
}

func node() *v1.Node {
	return &v1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid", ResourceVersion: "1"},
	}
}

// startDriver starts the driver of the Pod with this UID.
func (m *machine) startDriver(pod string) error {
	driver := exec.Command(m.program, m.root, nodeName, m.path("cdi"), m.path("device"), pod)
	driver.Env = append(os.Environ(), "KUBECONFIG="+m.kubeconfig)
	driver.Stdout, driver.Stderr = &m.output, &m.output
	m.drivers[pod] = driver
	return driver.Start()
}

// endDriver ends it with a signal, and waits for it.
func (m *machine) endDriver(pod string, signal syscall.Signal) error {
	driver := m.drivers[pod]
	delete(m.drivers, pod)
	if err := driver.Process.Signal(signal); err != nil {
		return err
	}
	err := driver.Wait()
	if signal == syscall.SIGKILL {
		return nil
	}
	return err
}

// startKubelet starts the part of a kubelet that drivers meet, on what an earlier one left.
func (m *machine) startKubelet() error {
	ctx, cancel := context.WithCancel(context.Background())
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	manager, err := dra.NewManager(klog.FromContext(ctx), m.client, m.path("state"))
	if err != nil {
		cancel()
		return err
	}
	getNode := func(context.Context) (*v1.Node, error) { return node(), nil }
	// The loop that unprepares claims of Pods that are gone must not run here: no Pod is known to it.
	if err := manager.Start(ctx, func() []*v1.Pod { return nil }, getNode, nil); err != nil {
		cancel()
		return err
	}
	plugins := pluginmanager.NewPluginManager(m.path("plugins_registry"), &record.FakeRecorder{})
	plugins.AddHandler(registration.DRAPlugin, manager.GetWatcherHandler())
	go plugins.Run(ctx, ready, ctx.Done())
	m.kubelet, m.endKubelet = manager, func() { manager.Stop(); cancel() }
	return nil
}

func (m *machine) end() {
	for pod := range m.drivers {
		_ = m.endDriver(pod, syscall.SIGKILL)
	}
	if m.endKubelet != nil {
		m.endKubelet()
	}
}

// registered waits until the kubelet would call the plugin at this endpoint.
func (m *machine) registered() error {
	handler := m.kubelet.GetWatcherHandler().(*draplugin.DRAPluginManager)
	return within(15*time.Second, func() error {
		_, err := handler.GetPlugin(driverName)
		return err
	})
}

// pod returns a Pod with one container and a claim, which has these devices.
func (m *machine) pod(name string, devices ...string) *v1.Pod {
	claim := &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name), ResourceVersion: "1"},
		Status: resourcev1.ResourceClaimStatus{
			Allocation:  &resourcev1.AllocationResult{},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID("pod-" + name)}},
		},
	}
	results := &claim.Status.Allocation.Devices.Results
	for i, device := range devices {
		request := fmt.Sprintf("r%d/sub", i)
		*results = append(*results, resourcev1.DeviceRequestAllocationResult{Request: request, Driver: driverName, Pool: nodeName, Device: device})
	}
	m.api.put("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"+name, claim)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name)},
		Spec: v1.PodSpec{
			ResourceClaims: []v1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}},
			Containers: []v1.Container{{
				Name:      "main",
				Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "c", Request: "r0"}}},
			}},
		},
	}
}
