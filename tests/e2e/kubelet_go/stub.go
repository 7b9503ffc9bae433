package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

// stub serves devices a and b. Each line of its input, such as `a b:Unhealthy`, is the next list.
func stub(ctx context.Context, args []string) error {
	root, resource := args[0], args[1]
	folder := filepath.Join(root, "device-plugins")
	probe := len(args) > 2 && args[2] == "probe"
	node := ""
	if probe {
		folder = filepath.Join(root, "plugins_registry")
	} else if len(args) > 2 {
		node = args[2]
	}
	logger := klog.FromContext(ctx)
	socket := filepath.Join(folder, "stub-"+filepath.Base(resource)+".sock")
	served := plugin.NewDevicePluginStub(logger, devices("a b"), socket, resource, true, true)
	served.SetAllocFunc(allocate(node))
	if err := served.Start(ctx); err != nil {
		return err
	}
	if !probe {
		kubelet := filepath.Join(folder, "kubelet.sock")
		if err := served.Register(ctx, kubelet, resource, ""); err != nil {
			return err
		}
		// Restarts and registers again once the kubelet's socket is created anew.
		go served.Watch(ctx, kubelet, resource, "")
	}
	fmt.Println("serving")
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			served.Update(devices(lines.Text()))
		}
	}()
	<-ctx.Done()
	return served.Stop(logger)
}

func devices(list string) []*pluginapi.Device {
	var devices []*pluginapi.Device
	for _, word := range strings.Fields(list) {
		id, health, found := strings.Cut(word, ":")
		if !found {
			health = pluginapi.Healthy
		}
		devices = append(devices, &pluginapi.Device{ID: id, Health: health})
	}
	return devices
}

// allocate gives each container the ids of its devices, and the device node, if there is one.
func allocate(node string) func(*pluginapi.AllocateRequest, map[string]*pluginapi.Device) (*pluginapi.AllocateResponse, error) {
	return func(r *pluginapi.AllocateRequest, _ map[string]*pluginapi.Device) (*pluginapi.AllocateResponse, error) {
		response := &pluginapi.AllocateResponse{}
		for _, request := range r.ContainerRequests {
			given := &pluginapi.ContainerAllocateResponse{
				Envs: map[string]string{"GO_DEVICES": strings.Join(request.DevicesIds, ",")},
			}
			if node != "" {
				given.Devices = []*pluginapi.DeviceSpec{{ContainerPath: node, HostPath: node, Permissions: "rw"}}
			}
			response.ContainerResponses = append(response.ContainerResponses, given)
		}
		return response, nil
	}
}
