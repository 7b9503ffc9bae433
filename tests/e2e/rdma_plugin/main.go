// The RDMA shared device plugin as its own main runs it, less one look at the kernel.
package main

import (
	"log"
	"os"
	"syscall"

	"github.com/Mellanox/k8s-rdma-shared-dev-plugin/pkg/resources"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: rdma_plugin CONFIG")
	}
	manager := resources.NewResourceManager(os.Args[1], false)
	// Its main calls ValidateRdmaSystemMode too, which asks the kernel by netlink whether RDMA devices are shared between
	// network namespaces. A machine without RDMA cannot answer, and the plugin would end before it registers.
	for _, step := range []func() error{
		manager.ReadConfig,
		manager.ValidateConfigs,
		manager.DiscoverHostDevices,
		manager.InitServers,
		manager.StartAllServers,
	} {
		if err := step(); err != nil {
			log.Fatal(err)
		}
	}
	stopUpdates := manager.PeriodicUpdate()
	received := <-resources.NewSignalNotifier(syscall.SIGINT, syscall.SIGTERM).Notify()
	log.Printf("received %v", received)
	stopUpdates()
	if err := manager.StopAllServers(); err != nil {
		log.Fatal(err)
	}
}
