// SPDX-License-Identifier: MIT
// A value for every expert of every layer, resident or not: a policy's memory of uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

template <class Value>
class ExpertTable {
 public:
  void Reset(uint32_t layers, uint32_t experts) {
    experts_ = experts;
    values_.assign(size_t{layers} * experts, Value{});
  }
  Value& operator[](ExpertKey key) {
    return values_[size_t{key.layer.value} * experts_ + key.expert.value];
  }
  const Value& operator[](ExpertKey key) const {
    return values_[size_t{key.layer.value} * experts_ + key.expert.value];
  }
  std::span<const Value> of(ExpertLayerId layer) const {
    return std::span(values_).subspan(size_t{layer.value} * experts_, experts_);
  }
  std::span<Value> of(ExpertLayerId layer) {
    return std::span(values_).subspan(size_t{layer.value} * experts_, experts_);
  }
  std::span<Value> all() { return values_; }

 private:
  uint32_t experts_ = 0;
  std::vector<Value> values_;
};

}  // namespace moestro
