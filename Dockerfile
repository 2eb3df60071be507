# CoreDNS with the plugin clusterset, and the command, for amd64 and arm64. The builder runs on the machine that builds and compiles for
# the one that the image is for.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
# One profile for both programs: with that of coredns alone Go would compile nearly everything twice.
ARG PGO
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -pgo "${PGO:-cmd/coredns/default.pgo}" -ldflags "-s -w${VERSION:+ -X main.version=$VERSION}" -o /out/ ./cmd/...

# Nothing but the two programs, the certificates that the server needs for forwarding over TLS, and a Corefile to be
# mounted over.
FROM scratch
LABEL org.opencontainers.image.title="clusterset"
LABEL org.opencontainers.image.description="CoreDNS with the plugin clusterset, and the command clusterset"
LABEL org.opencontainers.image.source="https://github.com/clusterset-dns/clusterset"
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/coredns /coredns
COPY --from=build /out/clusterset /clusterset
COPY corefile.example /etc/coredns/Corefile
# By number: Kubernetes cannot tell of a name whether it is root.
USER 65532:65532
# No right is needed for this one, as it is for 53.
EXPOSE 1053 1053/udp
ENTRYPOINT ["/coredns"]
CMD ["-conf", "/etc/coredns/Corefile"]
