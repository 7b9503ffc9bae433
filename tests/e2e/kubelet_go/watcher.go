package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"unsafe"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/pluginwatcher"
)

// watcher runs the example plugin of the kubelet's plugin watcher, and prints each status it is told.
func watcher(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("watcher ROOT TYPE NAME VERSION…")
	}
	root, kind, name, versions := args[0], args[1], args[2], args[3:]
	socket := filepath.Join(root, "plugins_registry", filepath.Base(name)+"-reg.sock")
	os.Remove(socket)
	plugin := pluginwatcher.NewTestExamplePlugin(name, kind, socket, versions...)
	// It hands statuses to its own tests only; until they are taken it does not answer.
	field := reflect.ValueOf(plugin).Elem().FieldByName("registrationStatus")
	statuses := *(*chan registerapi.RegistrationStatus)(unsafe.Pointer(field.UnsafeAddr()))
	if err := plugin.Serve(ctx, "v1beta1", "v1beta2"); err != nil {
		return err
	}
	for {
		select {
		case status := <-statuses:
			fmt.Printf("registered=%v error=%s\n", status.PluginRegistered, status.Error)
		case <-ctx.Done():
			return plugin.Stop(context.Background())
		}
	}
}

type driver struct {
	csi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "go-node", MaxVolumesPerNode: 7}, nil
}

func (d *driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return d.info, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	fmt.Printf("registered=%v error=%s\n", s.PluginRegistered, s.Error)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// csiDriver registers as node-driver-registrar does: one socket to register with, another to serve volumes on.
func csiDriver(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("csi ROOT NAME VERSION…")
	}
	root, name := args[0], args[1]
	endpoint := filepath.Join(root, "plugins", name, "csi.sock")
	d := &driver{info: &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: name, Endpoint: endpoint, SupportedVersions: args[2:],
	}}
	if err := os.MkdirAll(filepath.Dir(endpoint), 0o755); err != nil {
		return err
	}
	served := make(chan error, 2)
	for socket, register := range map[string]func(*grpc.Server){
		endpoint: func(s *grpc.Server) { csi.RegisterNodeServer(s, d) },
		filepath.Join(root, "plugins_registry", name+"-reg.sock"): func(s *grpc.Server) {
			registerapi.RegisterRegistrationServer(s, d)
		},
	} {
		os.Remove(socket)
		listener, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		server := grpc.NewServer()
		register(server)
		go func() { served <- server.Serve(listener) }()
		defer server.Stop()
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return nil
	}
}
