package main

import (
	"context"
	"time"

	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

func podResources(ctx context.Context, args []string) error {
	// Dialled by its bare path, which becomes the `:authority` of its requests, escaped.
	client, conn, err := podresources.GetV1Client(ctx, args[0], 10*time.Second, 16<<20)
	if err != nil {
		return err
	}
	defer conn.Close()
	list, err := client.List(ctx, &api.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	if err := show(map[string]any{"list": list.GetPodResources()}); err != nil {
		return err
	}
	for _, pod := range list.GetPodResources() {
		got, err := client.Get(ctx, &api.GetPodResourcesRequest{PodName: pod.Name, PodNamespace: pod.Namespace})
		if err != nil {
			return err
		}
		if err := show(map[string]any{"get": got.GetPodResources()}); err != nil {
			return err
		}
	}
	_, err = client.Get(ctx, &api.GetPodResourcesRequest{PodName: "none", PodNamespace: "default"})
	if err := show(map[string]any{"unknown": err.Error()}); err != nil {
		return err
	}
	allocatable, err := client.GetAllocatableResources(ctx, &api.AllocatableResourcesRequest{})
	if err != nil {
		return err
	}
	return show(map[string]any{"allocatable": allocatable.GetDevices()})
}
