// SPDX-License-Identifier: MIT
// Structs of counters that list what they count once: differences, sums, JSON and /metrics follow
// from the list.
//
//   struct Fruit {
//     uint64_t apples = 0;
//     uint64_t pears = 0;
//     double pears_each() const { return Share(pears, apples); }
//     static constexpr void Visit(auto&& visit) {
//       visit(&Fruit::apples, CounterText{.json = "apples", .metric = "apples_total",
//                                         .meaning = "Apples that were picked."});
//       visit(&Fruit::pears, CounterText{.json = "pears"});
//       visit(&Fruit::pears_each, CounterText{.json = "pears_each"});
//     }
//   };
//   static_assert(CountsAllOf<Fruit>());
//
// A row names a number, a member function that makes a number of the others, or another struct of
// counters. Reports have the rows in the order of the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace moestro {

// A part of counted things.

// 0 of nothing.
inline double Share(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// A counter's names in reports. A report leaves out counters whose name is empty.
struct CounterText {
  // Key in a report. For a struct within the struct: the beginning of its counters' keys.
  std::string_view json = {};
  std::string_view prefill = {};  // key for a run's prefill; `json` is for decode
  std::string_view sim = {};      // key in a report of the simulator
  std::string_view metric = {};   // in /metrics, without the program's name
  std::string_view label = {};    // for one row of a metric that has several: {end="failed"}
  std::string_view meaning = {};  // help text in /metrics; of several rows, the first one's
};

struct IgnoreCounter {
  constexpr void operator()(const auto&, const CounterText&) const {}
};
template <class T>
concept Counted = requires { T::Visit(IgnoreCounter{}); };

// The counts between `before` and `now`.
template <Counted T>
constexpr T operator-(const T& now, const T& before) {
  T difference = now;
  T::Visit([&](auto row, const CounterText&) {
    if constexpr (std::is_member_object_pointer_v<decltype(row)>) {
      difference.*row = now.*row - before.*row;
    }
  });
  return difference;
}

template <Counted T>
constexpr T& operator+=(T& sum, const T& more) {
  T::Visit([&](auto row, const CounterText&) {
    if constexpr (std::is_member_object_pointer_v<decltype(row)>) sum.*row += more.*row;
  });
  return sum;
}

// Calls visit(key, text, number) for each row whose text has a name of the kind `name`; a struct
// within the struct gives its own rows, each key behind the outer row's.
template <Counted T, class Visitor>
void ForEachCounter(const T& counts, std::string_view CounterText::* name, Visitor&& visit,
                    const std::string& begin = {}) {
  T::Visit([&](auto row, const CounterText& text) {
    if constexpr (std::is_member_object_pointer_v<decltype(row)>) {
      using Value = std::remove_cvref_t<decltype(counts.*row)>;
      if constexpr (Counted<Value>) {
        ForEachCounter(counts.*row, name, visit, begin + std::string(text.*name));
      } else if (!(text.*name).empty()) {
        visit(begin + std::string(text.*name), text, counts.*row);
      }
    } else if (!(text.*name).empty()) {
      visit(begin + std::string(text.*name), text, (counts.*row)());
    }
  });
}

// Whether a struct of numbers lists all of its members.
template <Counted T>
consteval bool CountsAllOf() {
  size_t bytes = 0;
  T::Visit([&](auto row, const CounterText&) {
    if constexpr (std::is_member_object_pointer_v<decltype(row)>) {
      bytes += sizeof(std::declval<T>().*row);
    }
  });
  return bytes == sizeof(T);
}

}  // namespace moestro
