// brutella NAME TYPE PORT TXT: announces a service by brutella/dnssd. SIGUSR1 changes its TXT record to version=2.
package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/brutella/dnssd"
)

func main() {
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	text := map[string]string{}
	for _, pair := range os.Args[4:] {
		key, value, _ := strings.Cut(pair, "=")
		text[key] = value
	}
	service, err := dnssd.NewService(dnssd.Config{Name: os.Args[1], Type: os.Args[2], Domain: "local", Port: port, Text: text})
	if err != nil {
		panic(err)
	}
	responder, err := dnssd.NewResponder()
	if err != nil {
		panic(err)
	}
	handle, err := responder.Add(service)
	if err != nil {
		panic(err)
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGUSR1)
	go func() {
		for range changes {
			handle.UpdateText(map[string]string{"version": "2"}, responder)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := responder.Respond(ctx); err != nil && ctx.Err() == nil {
		panic(err)
	}
}
