// SPDX-License-Identifier: MIT
#include "jinja/template.h"

#include <gtest/gtest.h>

namespace moestro::jinja {
namespace {

TEST(JinjaTemplate, Placeholder) {}

}  // namespace
}  // namespace moestro::jinja
