// The kubelet's own manager of DRA, its plugin manager, and the API server's validation of slices, against a driver in Rust.
//
//	dra_go DRIVER    starts DRIVER (the example `fuse` of petiole-dra), and prints a line for each promise that it keeps
//
// The API server is a map behind the paths that both sides use. Nothing is outside of a temporary folder, but one port of
// 127.0.0.1.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dra_go DRIVER")
		os.Exit(2)
	}
	if err := judge(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

// judge returns the first promise that was not kept.
func judge(program string) error {
	root, err := os.MkdirTemp("", "dra")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	m, err := newMachine(root, program)
	if err != nil {
		return err
	}
	defer m.end()
	for _, promise := range []struct {
		name string
		keep func(*machine) error
	}{
		{"publishes valid slices", publishes},
		{"registers with a kubelet that starts later, and slices are made again after that kubelet wiped them", registers},
		{"prepares a claim, twice alike", prepares},
		{"refuses a device that another claim has", refuses},
		{"tells the health of a Pod's device", health},
		{"serves v1beta1 and v1alpha1", olderVersions},
		{"is found again by a kubelet that restarted", kubeletRestart},
		{"unprepares after its own restart", driverRestart},
		{"is replaced without a gap", rollingUpdate},
		{"ends without a trace in the registry", leaves},
	} {
		if err := promise.keep(m); err != nil {
			return fmt.Errorf("%s: %w\n%s", promise.name, err, m.log())
		}
		fmt.Println("ok:", promise.name)
	}
	return nil
}

// within polls until check returns nil.
func within(limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func mustContain(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q has no %q", text, part)
	}
	return nil
}
