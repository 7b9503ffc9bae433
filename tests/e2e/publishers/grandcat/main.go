// grandcat NAME TYPE PORT TXT: announces a service by grandcat/zeroconf. SIGUSR1 changes its TXT record to version=2.
package main

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/grandcat/zeroconf"
)

func main() {
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	server, err := zeroconf.Register(os.Args[1], os.Args[2], "local.", port, os.Args[4:], nil)
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	for <-signals == syscall.SIGUSR1 {
		server.SetText([]string{"version=2"})
	}
	server.Shutdown()
}
