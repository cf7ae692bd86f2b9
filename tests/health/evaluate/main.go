// Command evaluate judges a recorded object as other tools do: with a health script of Argo CD (Lua), or with the
// health expressions of a Flux Kustomization (CEL). It prints the result as JSON.
//
//	evaluate lua SCRIPT OBJECT
//	evaluate cel EXPRESSIONS OBJECT
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/yaml"
)

func main() {
	result, err := run(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func run(kind, rule, object string) (map[string]string, error) {
	text, err := os.ReadFile(rule)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(object)
	if err != nil {
		return nil, err
	}
	if kind == "lua" {
		return health(string(text), data)
	}
	return status(text, data)
}

// health runs a script as Argo CD does (util/lua/lua.go): few libraries, and the object as the global obj.
func health(script string, data []byte) (map[string]string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage},
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
	} {
		err := state.CallByParam(lua.P{Fn: state.NewFunction(library.open), NRet: 0, Protect: true}, lua.LString(library.name))
		if err != nil {
			return nil, err
		}
	}
	object, err := luajson.Decode(state, data)
	if err != nil {
		return nil, err
	}
	state.SetGlobal("obj", object)
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returns no table")
	}
	return map[string]string{
		"status":  lua.LVAsString(table.RawGetString("status")),
		"message": lua.LVAsString(table.RawGetString("message")),
	}, nil
}

// status evaluates the expressions with the evaluator of Flux's kustomize-controller.
func status(text, data []byte) (map[string]string, error) {
	var checks []kustomize.CustomHealthCheck
	if err := yaml.UnmarshalStrict(text, &checks); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	for _, check := range checks {
		if check.APIVersion != object.GetAPIVersion() || check.Kind != object.GetKind() {
			continue
		}
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return nil, err
		}
		result, err := evaluator.Evaluate(context.Background(), object)
		if err != nil {
			return nil, err
		}
		return map[string]string{"status": string(result.Status), "message": result.Message}, nil
	}
	return nil, fmt.Errorf("no expression is for this kind")
}
