// This module pins the driver of the browser that tests the status page, so that it stays out of the product's go.mod.
module github.com/clusterset-dns/clusterset/test/tools/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
