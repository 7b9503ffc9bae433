package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

const firstPod, secondPod = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

func publishes(m *machine) error {
	if err := m.startDriver(firstPod); err != nil {
		return err
	}
	return m.hasSlices()
}

// hasSlices waits for the one slice of the example.
func (m *machine) hasSlices() error {
	return within(15*time.Second, func() error {
		all := m.api.published()
		if len(all) != 1 {
			return fmt.Errorf("%d slices", len(all))
		}
		spec := all[0].Spec
		if spec.Pool.ResourceSliceCount != 1 || len(spec.Devices) != 4 || all[0].OwnerReferences[0].UID != "node-uid" {
			return fmt.Errorf("%+v", all[0])
		}
		return nil
	})
}

func registers(m *machine) error {
	before := m.api.published()[0].UID
	if err := m.startKubelet(); err != nil {
		return err
	}
	if err := m.registered(); err != nil {
		return err
	}
	if err := within(15*time.Second, func() error {
		if all := m.api.published(); len(all) != 1 || all[0].UID == before {
			return fmt.Errorf("not made again: %d slices", len(all))
		}
		return nil
	}); err != nil {
		return err
	}
	return m.hasSlices()
}

func prepares(m *machine) error {
	pod := m.pod("a", "fuse-0", "fuse-1")
	var first string
	for range 2 {
		if err := m.kubelet.PrepareResources(context.Background(), pod); err != nil {
			return err
		}
		got, err := m.kubelet.GetResources(pod, &pod.Spec.Containers[0])
		if err != nil {
			return err
		}
		if ids := fmt.Sprint(got.CDIDevices); first == "" {
			first = ids
		} else if ids != first {
			return fmt.Errorf("%s, then %s", first, ids)
		}
	}
	if want := "[{example.com/fuse=claim-a-0}]"; first != want {
		return fmt.Errorf("%s, not %s", first, want)
	}
	file, err := os.ReadFile(m.path("cdi", "example.com-fuse-claim-a.json"))
	if err != nil {
		return err
	}
	var spec struct {
		CdiVersion, Kind string
		Devices          []struct{ Name string }
	}
	if err := json.Unmarshal(file, &spec); err != nil {
		return err
	}
	if spec.Kind != "example.com/fuse" || len(spec.Devices) != 2 || spec.Devices[1].Name != "claim-a-1" {
		return fmt.Errorf("%s", file)
	}
	return nil
}

func refuses(m *machine) error {
	err := m.kubelet.PrepareResources(context.Background(), m.pod("b", "fuse-1"))
	if err == nil {
		return fmt.Errorf("both claims have the device")
	}
	if err := mustContain(err.Error(), "default/a"); err != nil {
		return err
	}
	// The other device is free.
	other := m.pod("c", "fuse-2")
	if err := m.kubelet.PrepareResources(context.Background(), other); err != nil {
		return err
	}
	return m.kubelet.UnprepareResources(context.Background(), other)
}

// isSaid waits until the status of the Pod has this health of its device.
func (m *machine) isSaid(pod *v1.Pod, health v1.ResourceHealthStatus) error {
	return within(20*time.Second, func() error {
		status := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}}
		m.kubelet.UpdateAllocatedResourcesStatus(klog.Background(), pod, &status)
		all := status.ContainerStatuses[0].AllocatedResourcesStatus
		if len(all) != 1 || len(all[0].Resources) != 1 || all[0].Resources[0].Health != health {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

func health(m *machine) error {
	pod := m.pod("a", "fuse-0", "fuse-1")
	if err := m.isSaid(pod, v1.ResourceHealthStatusHealthy); err != nil {
		return err
	}
	if err := os.Remove(m.path("device")); err != nil {
		return err
	}
	if err := m.isSaid(pod, v1.ResourceHealthStatusUnhealthy); err != nil {
		return err
	}
	if err := within(5*time.Second, func() error {
		if taints := m.api.published()[0].Spec.Devices[0].Taints; len(taints) != 1 {
			return fmt.Errorf("taints: %+v", taints)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := os.WriteFile(m.path("device"), nil, 0o644); err != nil {
		return err
	}
	return m.isSaid(pod, v1.ResourceHealthStatusHealthy)
}

func olderVersions(m *machine) error {
	socket := m.path("plugins", driverName, "dra-"+firstPod+".sock")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	claims := []*drav1.Claim{
		{Namespace: "default", Name: "a", Uid: "claim-a"},
		{Namespace: "default", Name: "a", Uid: "another"},
		{Namespace: "default", Name: "none", Uid: "../none"},
	}
	client := drav1beta1.V1Beta1ClientWrapper{DRAPluginClient: drav1beta1.NewDRAPluginClient(conn)}
	response, err := client.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: claims})
	if err != nil {
		return err
	}
	if good := response.Claims["claim-a"]; good == nil || good.Error != "" || len(good.Devices) != 2 || good.Devices[0].RequestNames[0] != "r0" {
		return fmt.Errorf("%+v", good)
	}
	for _, uid := range []string{"another", "../none"} {
		if bad := response.Claims[uid]; bad == nil || bad.Error == "" {
			return fmt.Errorf("%s: %+v", uid, bad)
		}
	}
	stream, err := healthv1alpha1.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, &healthv1alpha1.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	list, err := stream.Recv()
	if err != nil {
		return err
	}
	if len(list.Devices) != 4 || list.Devices[0].Health != healthv1alpha1.HealthStatus_HEALTHY {
		return fmt.Errorf("%+v", list)
	}
	return nil
}

func kubeletRestart(m *machine) error {
	m.endKubelet()
	if err := m.startKubelet(); err != nil {
		return err
	}
	if err := m.registered(); err != nil {
		return err
	}
	return m.kubelet.PrepareResources(context.Background(), m.pod("a", "fuse-0", "fuse-1"))
}

func driverRestart(m *machine) error {
	if err := m.endDriver(firstPod, syscall.SIGKILL); err != nil {
		return err
	}
	if err := m.startDriver(firstPod); err != nil {
		return err
	}
	return within(15*time.Second, func() error {
		// What a driver that was killed had prepared is in its book.
		if err := m.kubelet.PrepareResources(context.Background(), m.pod("b", "fuse-1")); err == nil {
			return fmt.Errorf("both claims have the device")
		} else if err := mustContain(err.Error(), "default/a"); err != nil {
			return err
		}
		if err := m.kubelet.UnprepareResources(context.Background(), m.pod("a", "fuse-0", "fuse-1")); err != nil {
			return err
		}
		if files, _ := filepath.Glob(m.path("cdi", "*")); len(files) != 0 {
			return fmt.Errorf("left in the folder of CDI: %v", files)
		}
		return m.kubelet.PrepareResources(context.Background(), m.pod("b", "fuse-1"))
	})
}

func rollingUpdate(m *machine) error {
	if err := m.startDriver(secondPod); err != nil {
		return err
	}
	socket := m.path("plugins_registry", driverName+"-"+secondPod+"-reg.sock")
	if err := within(15*time.Second, func() error { _, err := os.Stat(socket); return err }); err != nil {
		return err
	}
	ended := make(chan error)
	go func() {
		time.Sleep(3 * time.Second)
		ended <- m.endDriver(firstPod, syscall.SIGTERM)
	}()
	// Pods come and go all the time.
	for i := 0; ; i++ {
		pod := m.pod(fmt.Sprintf("roll-%d", i), "fuse-3")
		if err := m.kubelet.PrepareResources(context.Background(), pod); err != nil {
			return err
		}
		if err := m.kubelet.UnprepareResources(context.Background(), pod); err != nil {
			return err
		}
		select {
		case err := <-ended:
			if err != nil || i < 10 {
				return fmt.Errorf("%d Pods: %v", i, err)
			}
			return m.kubelet.UnprepareResources(context.Background(), m.pod("b", "fuse-1"))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func leaves(m *machine) error {
	writes := m.api.writes
	if err := m.endDriver(secondPod, syscall.SIGTERM); err != nil {
		return err
	}
	sockets, _ := filepath.Glob(m.path("plugins*", "*.sock"))
	more, _ := filepath.Glob(m.path("plugins", driverName, "*.sock"))
	if len(sockets)+len(more) != 0 {
		return fmt.Errorf("left: %v %v", sockets, more)
	}
	if m.api.writes != writes {
		return fmt.Errorf("%d writes at the end", m.api.writes-writes)
	}
	return nil
}
