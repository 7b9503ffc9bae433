package main

import "net"

// addresses returns the IPv4 addresses of this machine but loopback. The library would resolve the host's name instead,
// and no DNS server knows it.
func addresses() []net.IP {
	all, err := net.InterfaceAddrs()
	if err != nil {
		panic(err)
	}
	var found []net.IP
	for _, address := range all {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			found = append(found, network.IP)
		}
	}
	return found
}
