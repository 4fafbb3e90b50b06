// SPDX-License-Identifier: MIT
// main() of the tests that compute with ggml's CPU backend. ggml has a plug-in for each level of
// instruction sets and takes the best one; where MOESTRO_TEST_GGML_CPU names a libggml-cpu-*.so,
// these tests take that one instead (`make test-variants`). The program does not know the variable:
// code that finds a CPU backend loaded uses it, so loading one first is enough.
#include <ggml-backend.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  // Before InitGoogleTest(), which asks for the parameters of tests: some come from the backend.
  if (const char* plug_in = std::getenv("MOESTRO_TEST_GGML_CPU"); plug_in != nullptr) {
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr ||
        ggml_backend_load(plug_in) == nullptr) {
      std::fprintf(stderr, "MOESTRO_TEST_GGML_CPU: ggml cannot use %s here\n", plug_in);
      return 2;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
