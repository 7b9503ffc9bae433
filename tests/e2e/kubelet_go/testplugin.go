package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/test/e2e_node/testdeviceplugin"
)

// testPlugin runs the plugin of the kubelet's own node tests, which fails at METHOD once the file FAIL is there.
func testPlugin(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("testplugin RESOURCE METHOD FAIL")
	}
	resource, method, fail := args[0], args[1], args[2]
	gomega.RegisterFailHandler(func(message string, _ ...int) { fmt.Fprintln(os.Stderr, message) })
	plugin := testdeviceplugin.NewDevicePlugin(func(called string) error {
		if _, err := os.Stat(fail); err == nil && called == method {
			return errors.New("as it was told")
		}
		return nil
	})
	devices := []*pluginapi.Device{{ID: "t", Health: pluginapi.Healthy}}
	var refusal error
	// It asks the kubelet's health first.
	go http.ListenAndServe("127.0.0.1:10248", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	// It says what it does to the test that runs.
	serve := func() {
		// Its socket's path has 107 bytes at most.
		if refusal = plugin.RegisterDevicePlugin(ctx, method[:3], resource, devices); refusal == nil {
			fmt.Println("registered")
			<-ctx.Done()
		}
	}
	ginkgo.Describe("plugin", func() { ginkgo.It("serves", serve) })
	ginkgo.RunSpecs(noTest{}, "testplugin")
	return refusal
}

type noTest struct{}

func (noTest) Fail() {}
