# No cluster and no agent: the kubelet's own manager of DRA, its plugin manager, and the API server's validation of slices, against
# the example driver of petiole-dra.
# shellcheck shell=bash

set_up() (
  export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
  build_module dra_go
)

test_the_kubelets_own_code_is_content_with_the_example_driver() {
  dra_go "$(dirname "$PETIOLE")/examples/fuse"
}
