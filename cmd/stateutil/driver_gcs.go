//go:build !nogcs

package main

import _ "github.com/tidemark/tidemark/blobstore/gcs" // leave it out with -tags nogcs
