package main

import (
	"context"
	"fmt"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

const checkpointFile = "kubelet_internal_checkpoint"

// checkpoints reads what a kubelet left, or writes the same data again with Go's own writer.
func checkpoints(_ context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("checkpoint read|write FOLDER")
	}
	manager, err := checkpointmanager.NewCheckpointManager(args[1])
	if err != nil {
		return err
	}
	data := checkpoint.New(nil, nil)
	if err := manager.GetCheckpoint(checkpointFile, data); err != nil {
		return err
	}
	entries, registered := data.GetData()
	if args[0] == "write" {
		return manager.CreateCheckpoint(checkpointFile, checkpoint.New(entries, registered))
	}
	return show(map[string]any{"entries": entries, "registered": registered})
}
