//go:build tools

package t

import _ "go.etcd.io/etcd/server/v3"
