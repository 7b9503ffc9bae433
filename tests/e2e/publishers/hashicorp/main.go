// hashicorp NAME TYPE PORT TXT: announces a service by hashicorp/mdns, which answers by unicast and says no goodbye.
package main

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/hashicorp/mdns"
)

func main() {
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	host, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	service, err := mdns.NewMDNSService(os.Args[1], os.Args[2], "local.", host+".local.", port, addresses(), os.Args[4:])
	if err != nil {
		panic(err)
	}
	server, err := mdns.NewServer(&mdns.Config{Zone: service})
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	if err := server.Shutdown(); err != nil {
		panic(err)
	}
}
