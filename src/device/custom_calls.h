// SPDX-License-Identifier: MIT
// Finds the functions of custom nodes, so that code of ours can run a graph that has no other
// nodes. ggml keeps a node's function in the node's parameters, at an undocumented place; a trial
// node shows whether the place is the assumed one.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <optional>

namespace moestro {

struct CustomCall {
  ggml_custom_op_t work = nullptr;
  void* userdata = nullptr;
  bool is_alone = false;  // runs on one thread
};

class CustomCalls {
 public:
  CustomCalls();
  // nullopt: `node` is no custom node, or the place of its function is not known.
  std::optional<CustomCall> Of(const ggml_tensor* node) const;

 private:
  bool is_known_ = false;
};

}  // namespace moestro
