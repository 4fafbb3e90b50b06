// SPDX-License-Identifier: MIT
// Structs of counters as JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/counters.h"
#include "base/json.h"

namespace moestro {

// Sets a key for each row whose text has a name of the kind `name`. REQUIRES: `object` is an
// object.
template <Counted T>
void AddCounters(Json& object, const T& counts,
                 std::string_view CounterText::* name = &CounterText::json) {
  ForEachCounter(counts, name, [&](const std::string& key, const CounterText&, auto number) {
    object.Set(key, number);
  });
}

}  // namespace moestro
