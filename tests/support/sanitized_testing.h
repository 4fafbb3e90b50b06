// SPDX-License-Identifier: MIT
// Whether a sanitizer watches. Its own memory is in no plan, so budgets cannot be measured then.
#pragma once

namespace moestro {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace moestro
