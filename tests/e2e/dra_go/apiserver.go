package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/resource"
	conversion "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
)

const slicesPath = "/apis/resource.k8s.io/v1/resourceslices"

// apiServer has objects by their path, and the slices apart.
type apiServer struct {
	mutex    sync.Mutex
	objects  map[string]any
	slices   map[string]*resourcev1.ResourceSlice
	watchers map[chan event]struct{}
	// history has every event. Its length is the version of the newest one.
	history []event
	writes  int
}

type event struct {
	Type   string                    `json:"type"`
	Object *resourcev1.ResourceSlice `json:"object"`
}

func newAPIServer() *apiServer {
	return &apiServer{
		objects:  map[string]any{},
		slices:   map[string]*resourcev1.ResourceSlice{},
		watchers: map[chan event]struct{}{},
	}
}

func (s *apiServer) put(path string, object any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.objects[path] = object
}

func (s *apiServer) published() []resourcev1.ResourceSlice {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var all []resourcev1.ResourceSlice
	for _, slice := range s.slices {
		all = append(all, *slice)
	}
	return all
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == slicesPath && r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" {
		s.watch(w, r)
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r.URL.Path != slicesPath && !strings.HasPrefix(r.URL.Path, slicesPath+"/") {
		if object, ok := s.objects[r.URL.Path]; ok {
			answer(w, http.StatusOK, object)
			return
		}
		refuse(w, http.StatusNotFound, "NotFound", r.URL.Path+" not found")
		return
	}
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, slicesPath), "/")
	switch r.Method {
	case http.MethodGet:
		list := resourcev1.ResourceSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(len(s.history))},
			Items:    []resourcev1.ResourceSlice{},
		}
		for _, slice := range s.slices {
			if selected(r, slice) {
				list.Items = append(list.Items, *slice)
			}
		}
		answer(w, http.StatusOK, list)
	case http.MethodPost, http.MethodPut:
		s.store(w, r, name)
	case http.MethodDelete:
		for _, slice := range s.slices {
			if slice.Name == name || name == "" && selected(r, slice) {
				delete(s.slices, slice.Name)
				s.tell("DELETED", slice)
			}
		}
		answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	}
}

// store creates or replaces a slice if Kubernetes' own validation allows it.
func (s *apiServer) store(w http.ResponseWriter, r *http.Request, name string) {
	slice := &resourcev1.ResourceSlice{}
	if err := json.NewDecoder(r.Body).Decode(slice); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	old := s.slices[slice.Name]
	if r.Method == http.MethodPost && old != nil {
		refuse(w, http.StatusConflict, "AlreadyExists", slice.Name)
		return
	}
	if r.Method == http.MethodPut && (old == nil || name != slice.Name || old.ResourceVersion != slice.ResourceVersion) {
		refuse(w, http.StatusConflict, "Conflict", slice.Name)
		return
	}
	var internal resource.ResourceSlice
	if err := conversion.Convert_v1_ResourceSlice_To_resource_ResourceSlice(slice, &internal, nil); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	if errs := validation.ValidateResourceSlice(&internal); len(errs) > 0 {
		refuse(w, http.StatusUnprocessableEntity, "Invalid", errs.ToAggregate().Error())
		return
	}
	kind := "ADDED"
	if old != nil {
		kind = "MODIFIED"
		slice.UID = old.UID
	} else {
		slice.UID = types.UID(fmt.Sprintf("uid-%d", len(s.history)+1))
	}
	s.slices[slice.Name] = slice
	s.writes++
	s.tell(kind, slice)
	answer(w, http.StatusOK, slice)
}

// tell gives the slice the next version, and tells everyone who watches.
func (s *apiServer) tell(kind string, slice *resourcev1.ResourceSlice) {
	slice.ResourceVersion = strconv.Itoa(len(s.history) + 1)
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}
	told := event{kind, slice.DeepCopy()}
	s.history = append(s.history, told)
	for watcher := range s.watchers {
		watcher <- told
	}
}

// watch tells what came after the version that the client has read, and then what comes.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan event, 1000)
	s.mutex.Lock()
	since, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil || since > len(s.history) {
		s.mutex.Unlock()
		refuse(w, http.StatusGone, "Expired", "unknown version")
		return
	}
	for _, missed := range s.history[since:] {
		events <- missed
	}
	s.watchers[events] = struct{}{}
	s.mutex.Unlock()
	defer func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.watchers, events)
	}()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			if selected(r, e.Object) && json.NewEncoder(w).Encode(e) == nil {
				w.(http.Flusher).Flush()
			}
		}
	}
}

func selected(r *http.Request, slice *resourcev1.ResourceSlice) bool {
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return false
	}
	node := ""
	if slice.Spec.NodeName != nil {
		node = *slice.Spec.NodeName
	}
	return selector.Matches(fields.Set{
		resourcev1.ResourceSliceSelectorDriver:   slice.Spec.Driver,
		resourcev1.ResourceSliceSelectorNodeName: node,
	})
}

func answer(w http.ResponseWriter, code int, object any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   "Failure", Code: int32(code), Reason: metav1.StatusReason(reason), Message: message,
	})
}
