//go:build !noazure

package main

import _ "github.com/tidemark/tidemark/blobstore/azure" // leave it out with -tags noazure
