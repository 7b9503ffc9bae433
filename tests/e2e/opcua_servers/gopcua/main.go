// A server of gopcua: gopcua PORT.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/gopcua/opcua/server"
	"github.com/gopcua/opcua/ua"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError)
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	s := server.New(
		server.EndPoint("127.0.0.1", port),
		server.EnableSecurity("None", ua.MessageSecurityModeNone),
		server.EnableAuthMode(ua.UserTokenTypeAnonymous),
		server.ServerName("gopcua judge"),
	)
	if err := s.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	select {}
}
