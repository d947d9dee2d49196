package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// chartFolder is the chart's, from the top of the tree.
const chartFolder = "cmd/holdfast/packaging/helm"

// runHelm runs helm at the top of the tree. HOLDFAST_HELM is its command, as in `make chart`.
func runHelm(ctx context.Context, args ...string) ([]byte, error) {
	words := append(strings.Fields(os.Getenv("HOLDFAST_HELM")), args...)
	if args[0] == "template" {
		words = append(words, "--kube-version=1.30") // helm takes an old one where its build names none
		words = append(words, "--namespace=default") // and the namespace of the operator's kubeconfig
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var complaint bytes.Buffer
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), &complaint
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull)
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, complaint.Bytes())
	}
	return out, err
}

func needHelm(t *testing.T) {
	t.Helper()
	if os.Getenv("HOLDFAST_HELM") == "" {
		t.Skip("needs helm: make chart")
	}
}

// render is the chart with the values of flags, without the names of templates.
func render(t *testing.T, flags ...string) string {
	t.Helper()
	out, err := runHelm(t.Context(), append([]string{"template", "holdfast", chartFolder}, flags...)...)
	require.NoError(t, err)
	text := regexp.MustCompile(`(?m)^# Source: .*\n`).ReplaceAllString(string(out), "")
	return strings.TrimPrefix(text, "---\n")
}

// TestChartVersion: the chart has the version of the program, whose image it starts.
func TestChartVersion(t *testing.T) {
	text := protocoltest.ReadFile(t, filepath.Join("packaging", "helm", "Chart.yaml"))
	require.Contains(t, text, "\nversion: "+protocol.HoldfastVersion+"\n")
	require.Contains(t, text, "\nappVersion: "+protocol.HoldfastVersion+"\n")
	release := protocoltest.ReadFile(t, filepath.Join("..", "..", ".github", "workflows", "release.yml"))
	require.Contains(t, release, `echo "VERSION=${GITHUB_REF_NAME#v}" >>"$GITHUB_ENV"`, "the tag v0.1.0 releases 0.1.0")
	require.Contains(t, release, "tags: ${{ vars.REGISTRY }}/${{ github.repository }}:${{ env.VERSION }}\n",
		"the chart starts appVersion")
}

// TestChartIsThePlainManifests: the manifests for kubectl are the chart's rendering.
func TestChartIsThePlainManifests(t *testing.T) {
	needHelm(t)
	for _, of := range []struct {
		file, head string
		flags      []string
	}{
		{
			"kubernetes.yaml", "# Three nodes on Kubernetes: the chart in helm/ with its defaults, written by " +
				"'make rewrite'. KUBERNETES.md says how\n# to apply, scale, upgrade, back up and monitor them. Clients connect " +
				"to holdfast:6379.\n\n",
			nil,
		},
		{
			"podmonitor.yaml", "",
			[]string{"--show-only=templates/monitoring.yaml", "--set=metrics.podMonitor.enabled=true"},
		},
		{"restore.yaml", "", []string{"--show-only=templates/restore.yaml", "--set=restore.file=FILE"}},
	} {
		want := of.head + render(t, of.flags...)
		path := filepath.Join("packaging", of.file)
		if want == protocoltest.ReadFile(t, path) {
			continue
		}
		if !protocoltest.Rewriting() {
			t.Errorf("%s is not what the chart makes: run 'make rewrite' and look at the change", of.file)
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
}

// TestChart: helm accepts the chart, and each of these sets of values makes objects that Kubernetes knows, of nodes
// with flags that fit together; values that are wrong are refused.
func TestChart(t *testing.T) {
	needHelm(t)
	out, err := runHelm(t.Context(), "lint", "--strict", chartFolder)
	require.NoError(t, err, "%s", out)
	folder := t.TempDir()
	strict := []string{"run", "."}
	for name, row := range map[string]struct {
		flags    string
		founders int
		objects  []string // beside StatefulSet and Services
		check    func(t *testing.T, c *server.Config, text string)
	}{
		"one node": {
			"replicas=1", 1,
			[]string{"PodDisruptionBudget", "NetworkPolicy", "CronJob", "PersistentVolumeClaim"},
			func(t *testing.T, c *server.Config, _ string) { require.Equal(t, "json", c.LogFormat) },
		},
		"five nodes": {
			"replicas=5,networkPolicy.enabled=false,podDisruptionBudget.enabled=false,backup.enabled=false," +
				"lockClasses={jobs:*,billing:*},flags.log-level=debug,flags.max-clients=20000,flags.cluster-mode=true", 3, nil,
			func(t *testing.T, c *server.Config, _ string) {
				require.Equal(t, []string{"jobs:* billing:*"}, c.LockClass)
				require.Equal(t, 20000, c.MaxClients)
				require.True(t, c.ClusterMode)
			},
		},
		"cert-manager": {
			"tls.issuerRef.name=my-ca,tls.issuerRef.kind=ClusterIssuer,tls.dnsNames={locks.example.com},backup.enabled=false", 3,
			[]string{"PodDisruptionBudget", "NetworkPolicy", "Certificate"},
			func(t *testing.T, c *server.Config, text string) {
				require.Equal(t, "/etc/holdfast-tls/tls.crt", c.TLSCert)
				require.Equal(t, c.TLSCert, c.PeerTLSCert)
				require.Contains(t, text, "secretName: holdfast-tls\n  issuerRef:\n    kind: ClusterIssuer\n    name: my-ca\n")
				for _, host := range []string{
					"holdfast", "holdfast.default.svc", "*.holdfast-nodes.default.svc", "locks.example.com",
				} {
					require.Contains(t, text, "\n    - \""+host+"\"\n", "a name by which clients connect")
				}
			},
		},
		"secrets that there are": {
			"fullnameOverride=locks,auth.existingSecret=mine,auth.users=true,auth.quotas=true,tls.existingSecret=certificates," +
				"tls.clientCertificates=true,backup.existingClaim=nightly,metrics.podMonitor.enabled=true", 3,
			[]string{"PodDisruptionBudget", "NetworkPolicy", "CronJob", "PodMonitor"},
			func(t *testing.T, c *server.Config, text string) {
				require.Equal(t, "/etc/holdfast/users.acl", c.ACLFile)
				require.Equal(t, "/etc/holdfast/users.quota", c.QuotaFile)
				require.Equal(t, "/etc/holdfast-tls/ca.crt", c.TLSClientCA)
				require.Contains(t, text, "{claimName: nightly}")
				require.Equal(t, 2, strings.Count(text, "secret: {secretName: mine,"), "of nodes and backups")
				require.Equal(t, 2, strings.Count(text, "secret: {secretName: certificates,"))
				require.Contains(t, text, "- {targetLabel: job, replacement: locks}")
				require.Contains(t, text, "keySecret: {name: certificates, key: tls.key}")
			},
		},
		"monitoring": {
			"fullnameOverride=locks,metrics.podMonitor.enabled=true,metrics.rules.enabled=true,metrics.dashboard.enabled=true," +
				"metrics.rules.labels.release=prometheus,backup.keep=3", 3,
			[]string{
				"PodDisruptionBudget", "NetworkPolicy", "CronJob", "PersistentVolumeClaim", "PodMonitor", "PrometheusRule",
				"ConfigMap",
			},
			func(t *testing.T, _ *server.Config, text string) {
				alerts := protocoltest.ReadFile(t, filepath.Join("..", "..", "server", "monitoring", "alerts.yaml"))
				require.Equal(t, strings.Count(alerts, "\n      - alert: "), strings.Count(text, "\n    - alert: "))
				require.Contains(t, text, `expr: up{job="locks"} == 0`)
				require.NotContains(t, text, `job="holdfast"`)
				require.Contains(t, text, "Node {{ $labels.instance }} knows no leader.", "a template of Prometheus'")
				require.Contains(t, text, "    release: prometheus\n")
				require.Contains(t, text, "grafana_dashboard: \"1\"\n")
				require.Contains(t, text, "[backup, --keep=3, /backups]")
			},
		},
		"where and how pods run": {
			"image.repository=registry.example.com/holdfast,image.tag=v9,image.pullSecrets={registry},persistence.size=20Gi," +
				"persistence.storageClass=fast,backup.storageClass=slow,service.type=LoadBalancer,service.annotations.a=b," +
				"networkPolicy.clients[0].namespaceSelector.matchLabels.team=orders," +
				"affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=rack," +
				"nodeSelector.disk=ssd,tolerations[0].key=locks,tolerations[0].operator=Exists,priorityClassName=high," +
				"podAnnotations.a=b,podLabels.team=locks,podSecurityContext.fsGroup=null,resources.limits.memory=2Gi", 3,
			[]string{"PodDisruptionBudget", "NetworkPolicy", "CronJob", "PersistentVolumeClaim"},
			func(t *testing.T, _ *server.Config, text string) {
				require.Equal(t, 2, strings.Count(text, "image: registry.example.com/holdfast:v9\n"))
				require.Equal(t, 2, strings.Count(text, "  nodeSelector:\n"), "of nodes and backups")
				require.Equal(t, 2, strings.Count(text, "- {name: registry}\n"))
				require.Contains(t, text, "storageClassName: fast\n")
				require.Contains(t, text, "storageClassName: slow\n")
				require.NotContains(t, text, "fsGroup:")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := render(t, "--set="+row.flags)
			file := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".yaml")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			strict = append(strict, file)
			objects, err := manifestsOf(strings.NewReader(text))
			require.NoError(t, err)
			var kinds []string
			for _, m := range objects {
				if m.Kind != "StatefulSet" && m.Kind != "Service" {
					kinds = append(kinds, m.Kind)
				}
			}
			require.ElementsMatch(t, row.objects, kinds)
			config := checkNodes(t, objects, row.founders)
			row.check(t, &config, text)
		})
	}
	values := filepath.Join(folder, "values")
	require.NoError(t, os.WriteFile(values, []byte("flags: {max-query-bytes: 64000000}"), 0o600))
	objects, err := manifestsOf(strings.NewReader(render(t, "--values="+values)))
	require.NoError(t, err)
	config := checkNodes(t, objects, 3)
	require.EqualValues(t, 64000000, config.MaxQueryBytes, "a file's numbers are floating-point to helm")
	cmd := exec.CommandContext(t.Context(), "go", strict...)
	cmd.Dir = filepath.Join("packaging", "strict")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)

	for _, wrong := range []string{
		"replicas=2", "replicas=\"3\"", "replica=3", "flags.join=a:1", "flags.Max_Memory=1gb", "backup.keep=0",
		"image.repository=", "flags.password=secret", "flags.insecure=true", "flags.max-clients=null",
		"tls.issuerRef.kind=Issuer", "topologySpread.zone=Sometimes", "lockClasses={a b}", "persistence.size=large",
	} {
		_, err := runHelm(t.Context(), "template", "holdfast", chartFolder, "--set="+wrong)
		require.ErrorContains(t, err, "values don't meet the specifications of the schema", wrong)
	}
	_, err = runHelm(t.Context(), "template", "holdfast", chartFolder, "--is-upgrade", "--set=restore.file=a.bak")
	require.ErrorContains(t, err, "restore.file is for 'helm template")
}

// TestChartFlags: the schema refuses flags that the chart or the image sets, those that would put a password into the
// manifest or take it away, and those for tests.
func TestChartFlags(t *testing.T) {
	var schema struct {
		Properties struct {
			Flags struct {
				PropertyNames struct{ Not struct{ Enum []string } }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(protocoltest.ReadFile(t, "packaging/helm/values.schema.json")), &schema))
	const templates = "packaging/helm/templates/"
	set := protocoltest.ReadFile(t, templates+"statefulset.yaml") + protocoltest.ReadFile(t, templates+"_helpers.tpl")
	var denied []string
	for _, o := range options(new(server.Config)) {
		other := slices.Contains([]string{"password", "cluster-secret", "insecure", "data-dir"}, o.name) // the image sets it
		if o.heading == "" && (other || o.debug || strings.Contains(set, "name: "+o.env()+"\n") ||
			strings.Contains(set, "name: "+o.env()+",")) {
			denied = append(denied, o.name)
		}
	}
	require.ElementsMatch(t, denied, schema.Properties.Flags.PropertyNames.Not.Enum)
}

// TestChartScales runs the page's chapter about helm, on nodes that are processes: one node becomes three and five, and
// members are removed before their pods are. The volume of a removed member starts no node until it is deleted.
func TestChartScales(t *testing.T) {
	needHelm(t)
	p := newKubernetesPage(t)
	install, out, found := strings.Cut(p.blocks["With Helm"], "helm upgrade")
	require.True(t, found)
	const upgrade = "helm upgrade holdfast " + chartFolder + " --reuse-values --set replicas="
	out, in, found := strings.Cut("helm upgrade"+out, upgrade+"3")
	require.True(t, found)
	scale := func(replicas int) {
		p.sh(t, fmt.Sprint(upgrade, replicas))
	}
	p.sh(t, strings.Replace(install, chartFolder, chartFolder+" --set replicas=1", 1))
	p.whole(t, 1)
	client := redis.NewClient(&redis.Options{
		Addr:     p.addrs["holdfast-0"][0],
		Password: protocoltest.ReadFile(t, filepath.Join(p.dir, "secret-holdfast", "password")),
	})
	defer client.Close()
	require.NoError(t, client.Set(t.Context(), "kept", "yes", 0).Err())
	scale(3)
	p.sh(t, "kubectl rollout status statefulset/holdfast")
	p.whole(t, 3)
	p.sh(t, out)
	p.whole(t, 5)

	members := func(want ...string) {
		t.Helper()
		said := p.sh(t, "kubectl exec holdfast-0 -- /holdfast cluster members")
		for i := range 5 {
			name := fmt.Sprintf("holdfast-%d", i)
			require.Equal(t, i < len(want), strings.Contains(said, name+"@"), "%s\n%s", name, said)
		}
	}
	p.sh(t, "kubectl delete pod holdfast-4; kubectl rollout status statefulset/holdfast")
	members("0", "1", "2", "3", "4") // a pod that is stopped stays a member
	// As by a job that failed half-way.
	p.sh(t, "kubectl exec holdfast-0 -- /holdfast cluster remove holdfast-4")
	scale(3)
	members("0", "1", "2")
	p.mu.Lock()
	said, claims := p.jobs["holdfast-scale-in"].log, len(p.claims)
	p.mu.Unlock()
	require.Equal(t, 6, claims, "the volumes of those that were removed stay, and the backups'")
	require.Regexp(t, `^holdfast cluster: holdfast-4 is no member\nholdfast-3 was removed`, said)
	p.sh(t, "kubectl rollout status statefulset/holdfast")

	scale(5)
	for _, name := range []string{"holdfast-3", "holdfast-4"} {
		require.NoError(t, p.wait("the end of "+name, func() bool {
			pod := p.pods[name]
			return pod != nil && len(pod.statuses) > 1 && pod.statuses[0] == statusRemoved && pod.statuses[1] == statusRemoved
		}))
	}
	members("0", "1", "2")
	p.sh(t, "kubectl delete pvc data-holdfast-4 data-holdfast-3 --wait=false; kubectl delete pod holdfast-4 holdfast-3")
	p.whole(t, 5)

	p.sh(t, upgrade+"3"+in)
	p.whole(t, 3)
	scale(1)
	p.sh(t, "kubectl rollout status statefulset/holdfast")
	p.whole(t, 1)
	members("0")
	require.Equal(t, "yes", client.Get(t.Context(), "kept").Val())
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.trouble)
}
