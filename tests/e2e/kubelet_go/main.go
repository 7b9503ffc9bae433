// Go's own code against `petiole kubelet`: what the project cannot have got wrong in the same way on both sides.
//
//	kubelet_go stub ROOT RESOURCE [probe|NODE]    the kubelet's device plugin stub; probe: in plugins_registry; NODE: what a container gets
//	kubelet_go testplugin RESOURCE METHOD FAIL    the plugin of the kubelet's node tests, in /var/lib/kubelet
//	kubelet_go podresources SOCKET                List, Get of each Pod, GetAllocatableResources, as JSON
//	kubelet_go checkpoint read|write FOLDER       the kubelet's checkpoint: read and verified, or written anew
//	kubelet_go watcher ROOT TYPE NAME VERSION…    the plugin watcher's example plugin; prints what it is told
//	kubelet_go csi ROOT NAME VERSION…             a CSI driver that serves NodeGetInfo
//	kubelet_go devicemanager                      the kubelet's device manager, in /var/lib/kubelet, which can be held
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	commands := map[string]func(context.Context, []string) error{
		"stub":          stub,
		"podresources":  podResources,
		"checkpoint":    checkpoints,
		"watcher":       watcher,
		"csi":           csiDriver,
		"testplugin":    testPlugin,
		"devicemanager": deviceManager,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubelet_go stub|podresources|checkpoint|watcher|csi|testplugin|devicemanager ARGS")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(value any) error {
	return json.NewEncoder(os.Stdout).Encode(value)
}
