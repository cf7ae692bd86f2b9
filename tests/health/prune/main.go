// Deletes the objects of a Kustomization as kustomize-controller does when they left its source, or when it is deleted
// (deleteObjects in internal/controller/kustomization_controller.go), and prints the result for each.
//
//	prune KUBECONFIG NAME NAMESPACE < LIST
//
// NAME and NAMESPACE are those of the Kustomization; LIST is a list of its objects as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/pkg/ssa"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const group = "kustomize.toolkit.fluxcd.io"

func main() {
	if err := prune(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func prune(kubeconfig, name, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cluster, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	var list struct {
		Items []*unstructured.Unstructured `json:"items"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&list); err != nil {
		return err
	}
	manager := ssa.NewResourceManager(cluster, nil, ssa.Owner{Field: "kustomize-controller", Group: group})
	changes, err := manager.DeleteAll(context.Background(), list.Items, ssa.DeleteOptions{
		PropagationPolicy: metav1.DeletePropagationBackground,
		Inclusions:        manager.GetOwnerLabels(name, namespace),
		Exclusions:        map[string]string{group + "/prune": "disabled", group + "/reconcile": "disabled"},
	})
	if err != nil {
		return err
	}
	for _, entry := range changes.Entries {
		fmt.Println(entry.Subject, entry.Action)
	}
	return nil
}
