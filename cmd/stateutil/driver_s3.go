//go:build !nos3

package main

import _ "github.com/tidemark/tidemark/blobstore/s3" // leave it out with -tags nos3
