//go:build linux && integration

package main

import _ "github.com/tidemark/tidemark/blobstore/s3" // for -store, with -tags integration
