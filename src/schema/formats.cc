// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "base/format.h"
#include "schema/pattern.h"

namespace moestro {
namespace {

// RFC 3339. The 29th of February only in leap years; no leap seconds.
constexpr std::string_view kDate =
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
    "02-(0[1-9]|1\\d|2[0-8]))|"
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kHex = "[0-9a-fA-F]";
constexpr std::string_view kByte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
// A name may have 255 bytes: four labels at most stay below that.
constexpr std::string_view kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,60}[A-Za-z0-9])?";

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view format) {
  if (format == "date") return Format("^{}$", kDate);
  if (format == "time") return Format("^{}$", kTime);
  if (format == "date-time") return Format("^{}[Tt]{}$", kDate, kTime);
  if (format == "uuid") return Format("^{0}{{8}}-({0}{{4}}-){{3}}{0}{{12}}$", kHex);
  if (format == "ipv4") return Format("^({0}\\.){{3}}{0}$", kByte);
  const std::string host = Format("{0}(\\.{0}){{0,3}}", kLabel);
  if (format == "hostname") return Format("^{}$", host);
  // The local part has at most 64 bytes.
  if (format == "email") return Format("^[\\w+-]{{1,20}}(\\.[\\w+-]{{1,20}}){{0,2}}@{}$", host);
  if (format == "uri") {
    constexpr std::string_view kFree = "([\\w.~!$&'()*+,;=:-]|%[0-9a-fA-F]{2})";
    constexpr std::string_view kPath = "([\\w.~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2})";
    return Format(
        "^[A-Za-z][A-Za-z0-9+.-]*:(//({0}*@)?{1}(:\\d{{1,5}})?(/{2}*)?|{0}{2}*)(\\?{2}*)?(#{2}*)?$",
        kFree, host, kPath);
  }
  return std::nullopt;
}

bool IsStandardFormat(std::string_view format) {
  constexpr std::array<std::string_view, 19> kNames = {"date",          "date-time",
                                                       "duration",      "email",
                                                       "hostname",      "idn-email",
                                                       "idn-hostname",  "ipv4",
                                                       "ipv6",          "iri",
                                                       "iri-reference", "json-pointer",
                                                       "regex",         "relative-json-pointer",
                                                       "time",          "uri",
                                                       "uri-reference", "uri-template",
                                                       "uuid"};
  return std::ranges::contains(kNames, format);
}

}  // namespace moestro
