// SPDX-License-Identifier: MIT
// One maker per policy; policy_registry.cc gives them names and parameters. A maker gets a value
// for each of its parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "decide/slots/policy.h"

namespace moestro {

using PolicyValues = std::map<std::string, double, std::less<>>;

std::unique_ptr<Policy> MakeLru(const PolicyValues& values);
std::unique_ptr<Policy> MakeLfu(const PolicyValues& values);
std::unique_ptr<Policy> MakeLfuSeq(const PolicyValues& values);
std::unique_ptr<Policy> MakeLfru(const PolicyValues& values);
std::unique_ptr<Policy> MakeFld(const PolicyValues& values);
std::unique_ptr<Policy> MakeHobbit(const PolicyValues& values);
std::unique_ptr<Policy> MakeEdgeMoe(const PolicyValues& values);
std::unique_ptr<Policy> MakeNextUse(const PolicyValues& values);

}  // namespace moestro
