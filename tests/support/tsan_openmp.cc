// SPDX-License-Identifier: MIT
// ThreadSanitizer and OpenMP. ggml's compute threads belong to libgomp, which is not instrumented:
// its fork, barrier and join order memory through futexes that the sanitizer cannot see, and each
// value handed to a compute thread would look like a race. Suppressing those reports would hide the
// real ones in the same functions, so this library, linked in the tsan preset only, stands before
// libgomp and tells the sanitizer what its calls order.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

using Body = void (*)(void*);

// Never closed: compute threads may outlive every destructor.
void* Libgomp() {
  static void* const handle = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_GLOBAL);
  return handle;
}

template <class Function>
Function* Original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(Libgomp(), name));
}

// One tag for all teams: orders a little more than libgomp does when several teams run at once, and
// Moestro computes with one team at a time.
char fork_tag, join_tag;
// Two barriers in turn: a thread that leaves one late must not learn what the others did before
// they came to the next. They cannot be further ahead than that.
char barrier_tags[2];
thread_local unsigned barriers_passed = 0;  // in this parallel region; equal in all its threads

struct Fork {
  Body body;
  void* data;
};

void RunBody(void* argument) {
  __tsan_acquire(&fork_tag);
  const Fork fork = *static_cast<Fork*>(argument);
  barriers_passed = 0;
  fork.body(fork.data);
  __tsan_release(&join_tag);
}

}  // namespace

extern "C" {

void GOMP_parallel(Body body, void* data, unsigned threads, unsigned flags) {
  static auto* const original = Original<void(Body, void*, unsigned, unsigned)>("GOMP_parallel");
  Fork fork{body, data};
  __tsan_release(&fork_tag);
  original(RunBody, &fork, threads, flags);
  __tsan_acquire(&join_tag);
}

void GOMP_barrier() {
  static auto* const original = Original<void()>("GOMP_barrier");
  char* const tag = &barrier_tags[barriers_passed++ % 2];
  __tsan_release(tag);
  original();
  __tsan_acquire(tag);
}

}  // extern "C"
