// SPDX-License-Identifier: MIT
// The table of an engine's options, one row for each that a user may set.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"
#include "engine/engine_options.h"

namespace moestro {

// An option of an engine that a user may set, in one row: its flag, its help, how a text is read
// into it and written, its values, and its effects on other options and on files. Flags, knobs of
// sweeps, checks and the choices of saved sequences follow from the rows.
//
// A row is described by its plain members and given its access by one of the functions below:
//
//   NumberOption({.flag = "--t1", .value = "S", .help = "...", .part = OptionGroup::kLossy},
//                [](auto& o) -> auto& { return o.lossy.t1; }, 0.0, 1.0)
//
// `member` gives the option's place in an EngineOptions, const or not.

// The heading under which help lists an option.
enum class OptionGroup : uint8_t {
  kMachine,  // memory, disk and threads
  kDevice,
  kCopies,  // files and memory for cheaper misses
  kLossy,   // exactness and speed of missing experts; also options of the simulator
  kLittle,  // fewer experts first; also options of the simulator
};

// Conditions under which an option changes a bit of keys and values; docs/sequence-format.md
// explains each value.
enum class Counts : uint8_t { kNo, kYes, kLossy, kSlots, kDevice, kRope, kRows };
std::string_view NameOf(Counts counts);  // "no", "yes", as in the document

struct OptionRow {
  std::string_view flag;        // "-c,--ctx,--ctx-size"; a switch that is on at times "--a,!--no-a"
  std::string_view value = {};  // the name of the value in help; empty: a switch
  std::string help = {};        // without range, default and known values
  std::string usual = {};       // the default, if the value in EngineOptions does not show it
  std::string known = {};       // "\nNAME: what it is" for each known value
  OptionGroup part = OptionGroup::kMachine;
  std::string_view needs = {};     // a flag that this option needs; empty: none
  std::string_view excludes = {};  // a flag that excludes this option
  bool is_knob = false;            // an option of sweeps
  bool is_budget = false;          // sets the budget of a sweep
  bool is_by_quality = false;      // --quality chooses it
  Counts counts = Counts::kNo;
  // The value that the engine derives from the text counts, not the text
  // (native/kept_sequences.cc).
  bool is_resolved = false;

  // The members below are set by the functions that make rows.
  std::string range = {};  // "from 0 to 1"; empty: no range
  // kUsage for an invalid text, with a sentence that names the text and the valid values.
  std::function<Status(EngineOptions&, const std::string&)> set = {};
  // The option's value as a text that set() reads; nullopt: the option is not set. A switch: "1" or
  // "0".
  std::function<std::optional<std::string>(const EngineOptions&)> get = {};
  // kUsage for a value that set() does not make; empty: every value is valid.
  std::function<Status(const EngineOptions&)> check = {};
  std::function<bool&(EngineOptions&)> on_off = {};  // for a switch; else empty

  // The first long name without dashes: "ctx".
  std::string_view name() const {
    const std::string_view rest = flag.substr(flag.find("--") + 2);
    return rest.substr(0, rest.find(','));
  }
};

// The help of a row, with its range, its default and its known values.
std::string HelpOf(const OptionRow& row);

// A pointer to an option's value; nullptr: the option has no value.
template <class T>
const T* ValueIn(const T& value) {
  return &value;
}
template <class T>
const T* ValueIn(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

// Whether the ends of a range are part of it.
enum class Ends : uint8_t { kIn, kOut };

// A number from `low` to `high`. If the member is optional, nullopt means not set.
template <class T, class Member>
OptionRow NumberOption(OptionRow row, Member member, T low, T high, Ends ends = Ends::kIn) {
  const bool has_range = low != T{} || high != std::numeric_limits<T>::max();
  const std::string limits = ends == Ends::kIn ? Format("from {} to {}", low, high)
                                               : Format("between {} and {}", low, high);
  if (has_range) row.range = limits;
  const std::string kind = std::is_integral_v<T> ? "whole number" : "number";
  const std::string wanted = has_range ? Format("{} {}", kind, limits) : kind;
  const auto is_within = [=](T number) {
    return ends == Ends::kIn ? number >= low && number <= high : number > low && number < high;
  };
  row.set = [=](EngineOptions& options, const std::string& text) -> Status {
    const std::optional<T> number = ParseNumber<T>(text);
    if (!number || !is_within(*number)) return Fail(Errc::kUsage, "'{}' is no {}", text, wanted);
    member(options) = *number;
    return {};
  };
  row.get = [=](const EngineOptions& options) -> std::optional<std::string> {
    const T* number = ValueIn(member(options));
    if (number == nullptr) return std::nullopt;
    return Format("{}", *number);
  };
  if (!has_range) return row;
  row.check = [=, flag = std::string(row.name())](const EngineOptions& options) -> Status {
    const T* number = ValueIn(member(options));
    if (number == nullptr || is_within(*number)) return {};
    return Fail(Errc::kUsage, "--{} is {}; write a {}", flag, *number, wanted);
  };
  return row;
}

// Gives a row access to a whole number of `units` from 1 on, or "auto", which is 0.
template <class Member>
OptionRow AutoOption(OptionRow row, Member member, uint32_t high, const char* units) {
  const bool has_most = high != std::numeric_limits<uint32_t>::max();
  const std::string wanted = has_most ? Format("1 to {}", high) : "1 or more";
  row.range = wanted;
  row.set = [=, units = std::string(units)](EngineOptions& options,
                                            const std::string& text) -> Status {
    const uint32_t number = ParseNumber<uint32_t>(text).value_or(0);
    const bool is_number = number > 0 && number <= high;
    if (!is_number && text != "auto") {
      return Fail(Errc::kUsage, "'{}' is not a number of {}; write auto, or {}", text, units,
                  wanted);
    }
    member(options) = is_number ? number : 0;
    return {};
  };
  row.get = [=](const EngineOptions& options) -> std::optional<std::string> {
    const uint32_t number = member(options);
    return number > 0 ? Format("{}", number) : "auto";
  };
  row.check = [=, flag = std::string(row.name())](const EngineOptions& options) -> Status {
    if (member(options) <= high) return {};
    return Fail(Errc::kUsage, "--{} is {}; write auto, or {}", flag, member(options), wanted);
  };
  return row;
}

// A text that `is_known` accepts; any text if `is_known` is empty.
template <class Member>
OptionRow TextOption(OptionRow row, Member member,
                     const std::function<Status(const std::string&)>& is_known = {}) {
  row.set = [member, is_known](EngineOptions& options, const std::string& text) -> Status {
    if (is_known) TRY_STATUS(is_known(text));
    member(options) = text;
    return {};
  };
  row.get = [=](const EngineOptions& options) -> std::optional<std::string> {
    return member(options);
  };
  if (!is_known) return row;
  row.check = [=](const EngineOptions& options) { return is_known(member(options)); };
  return row;
}

// A value with a name: `parse` gives a Result of the value, `name_of` the name.
template <class Member, class Parse, class NameOf>
OptionRow NamedOption(OptionRow row, Member member, Parse parse, NameOf name_of) {
  row.set = [=](EngineOptions& options, const std::string& text) -> Status {
    TRY(member(options), parse(text));
    return {};
  };
  row.get = [=](const EngineOptions& options) -> std::optional<std::string> {
    return std::string(name_of(member(options)));
  };
  return row;
}

template <class Member>
OptionRow SwitchOption(OptionRow row, Member member) {
  row.on_off = [=](EngineOptions& options) -> bool& { return member(options); };
  row.set = [=](EngineOptions& options, const std::string& text) -> Status {
    if (text != "0" && text != "1") return Fail(Errc::kUsage, "'{}' is neither 0 nor 1", text);
    member(options) = text == "1";
    return {};
  };
  row.get = [=](const EngineOptions& options) -> std::optional<std::string> {
    return member(options) ? "1" : "0";
  };
  return row;
}

// The rows in the order in which help lists them; options of a part are together.
std::span<const OptionRow> OptionTable();

// kUsage for the first value outside its range, naming the flag, the value and the range.
Status CheckOptions(const EngineOptions& options, std::span<const OptionRow> table = OptionTable());

// REQUIRES: the table has the row. `name` without dashes.
const OptionRow& FindOption(std::string_view name);

}  // namespace moestro
