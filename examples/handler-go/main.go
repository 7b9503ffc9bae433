// A discovery handler: it finds those of some addresses that accept TCP connections, such as
// discoveryDetails: '{"addresses": ["10.0.0.7:554", "10.0.0.8:554"]}'
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"handler-go/v0"
	"log"
	"net"
	"os"
	"slices"
	"time"
)

const name = "reachable-go"

type handler struct {
	v0.UnimplementedDiscoveryHandlerServer
}

func (handler) Discover(request *v0.DiscoverRequest, stream v0.DiscoveryHandler_DiscoverServer) error {
	var details struct{ Addresses []string }
	if err := json.Unmarshal([]byte(request.DiscoveryDetails), &details); err != nil || details.Addresses == nil {
		// It is shown on the Configuration.
		return status.Errorf(codes.InvalidArgument, "no list of host:port in `addresses`: %v", err)
	}
	last := []string{"nothing was sent yet"}
	for ; stream.Context().Err() == nil; time.Sleep(2 * time.Second) {
		found, list := []string{}, &v0.DiscoverResponse{}
		for _, address := range details.Addresses {
			if connection, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				connection.Close()
				host, port, _ := net.SplitHostPort(address)
				// The id is the device's name for ever: its Instance is named after it.
				properties := map[string]string{"ADDRESS": host, "PORT": port}
				found, list.Devices = append(found, address), append(list.Devices, &v0.Device{Id: address, Properties: properties})
			}
		}
		if !slices.Equal(found, last) { // each message is the whole list
			stream.Send(list) // an error ends the context
			last = found
		}
	}
	return nil
}

// Tells the agent where this handler is. Once is enough: the agent keeps it.
func register(agent, socket string) {
	connection, err := grpc.NewClient("unix://"+agent, grpc.WithTransportCredentials(insecure.NewCredentials()))
	request := &v0.RegisterDiscoveryHandlerRequest{Name: name, Endpoint: socket, Shared: true}
	for err == nil {
		_, err := v0.NewRegistrationClient(connection).RegisterDiscoveryHandler(context.Background(), request)
		if err == nil {
			return
		}
		log.Printf("not registered yet: %v", err)
		time.Sleep(5 * time.Second)
	}
}

func main() {
	folder := cmp.Or(os.Getenv("DISCOVERY_HANDLERS_DIRECTORY"), "/var/lib/akri")
	socket := folder + "/" + name + ".sock"
	os.Remove(socket)
	server := grpc.NewServer()
	v0.RegisterDiscoveryHandlerServer(server, handler{})
	listener, err := net.Listen("unix", socket)
	if err == nil {
		go register(folder+"/agent-registration.sock", socket)
		err = server.Serve(listener)
	}
	log.Fatal(err)
}
