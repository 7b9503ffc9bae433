package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

// deviceManager runs the kubelet's device manager in /var/lib/kubelet until it is ended. Its input holds it: after `hold answer`
// it knows a plugin and does not answer Register, after `hold stream` it has answered and does not open ListAndWatch, both
// until `go`. At each change it prints how many plugins it knows, and the resources with devices that can be allocated.
func deviceManager(ctx context.Context, _ []string) error {
	logger := klog.FromContext(ctx)
	manager, err := devicemanager.NewManagerImpl(logger, nil, nil)
	if err != nil {
		return err
	}
	held := &heldManager{ManagerImpl: manager, known: map[string]bool{}, holds: map[string]chan struct{}{}}
	server, err := plugin.NewServer(logger, pluginapi.KubeletSocket, held, held)
	if err != nil {
		return err
	}
	if err := server.Start(logger); err != nil {
		return err
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			held.obey(lines.Text())
		}
	}()
	held.print()
	<-ctx.Done()
	return server.Stop(logger)
}

type heldManager struct {
	*devicemanager.ManagerImpl
	mutex sync.Mutex
	known map[string]bool
	holds map[string]chan struct{}
}

func (m *heldManager) PluginConnected(ctx context.Context, resource string, p plugin.DevicePlugin) error {
	// The client's own field, by which it calls ListAndWatch.
	api := reflect.ValueOf(p).Elem().FieldByName("client")
	reflect.NewAt(api.Type(), api.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(heldClient{p.API(), m}))
	if err := m.ManagerImpl.PluginConnected(ctx, resource, p); err != nil {
		fmt.Println("refused:", err)
		return err
	}
	m.knows(resource+" "+p.SocketPath(), true)
	m.wait("hold answer")
	return nil
}

func (m *heldManager) PluginDisconnected(logger klog.Logger, resource string, socket string) {
	m.ManagerImpl.PluginDisconnected(logger, resource, socket)
	m.knows(resource+" "+socket, false)
}

func (m *heldManager) PluginListAndWatchReceiver(logger klog.Logger, resource string, list *pluginapi.ListAndWatchResponse) {
	m.ManagerImpl.PluginListAndWatchReceiver(logger, resource, list)
	m.print()
}

func (m *heldManager) knows(plugin string, known bool) {
	m.mutex.Lock()
	if known {
		m.known[plugin] = true
	} else {
		delete(m.known, plugin)
	}
	m.mutex.Unlock()
	m.print()
}

func (m *heldManager) print() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	_, all, _ := m.GetCapacity(klog.Background())
	allocatable := 0
	for _, devices := range all {
		if !devices.IsZero() {
			allocatable++
		}
	}
	fmt.Println(len(m.known), "plugins,", allocatable, "allocatable")
}

func (m *heldManager) obey(command string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if command != "go" {
		m.holds[command] = make(chan struct{})
		return
	}
	for _, hold := range m.holds {
		close(hold)
	}
	clear(m.holds)
}

func (m *heldManager) wait(hold string) {
	m.mutex.Lock()
	held := m.holds[hold]
	m.mutex.Unlock()
	if held != nil {
		<-held
	}
}

type heldClient struct {
	pluginapi.DevicePluginClient
	manager *heldManager
}

func (c heldClient) ListAndWatch(ctx context.Context, in *pluginapi.Empty, options ...grpc.CallOption) (pluginapi.DevicePlugin_ListAndWatchClient, error) {
	c.manager.wait("hold stream")
	return c.DevicePluginClient.ListAndWatch(ctx, in, options...)
}
