// SPDX-License-Identifier: MIT
#include "learned/beside_model.h"

namespace moestro {

Status CheckMadeFor(const ModelId& model, const ModelId& made_for, const std::string& path,
                    std::string_view remedy) {
  if (made_for.may_be(model)) return {};
  return Fail(Errc::kInvalidRequest, "{}: made for {}, not for {}; {}", path, made_for.text(),
              model.text(), remedy);
}

}  // namespace moestro
