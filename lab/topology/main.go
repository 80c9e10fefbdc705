// kube-scheduler-topology is kube-scheduler with one plugin of sigs.k8s.io/scheduler-plugins, NodeResourceTopologyMatch,
// which knows the free devices of each NUMA zone from NodeResourceTopology objects.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
)

func main() {
	plugin := scheduler.WithPlugin(noderesourcetopology.Name, noderesourcetopology.New)
	os.Exit(cli.Run(scheduler.NewSchedulerCommand(plugin)))
}
