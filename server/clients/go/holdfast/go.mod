module github.com/holdfast/holdfast/server/clients/go/holdfast

go 1.26.0
