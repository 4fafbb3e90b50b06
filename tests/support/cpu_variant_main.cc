// SPDX-License-Identifier: MIT
// main() of the tests that compute with ggml's CPU backend. ggml has a plug-in for each level of
// instruction sets and takes the best one; with MOESTRO_TEST_GGML_CPU=/path/libggml-cpu-haswell.so
// these tests take that one instead (`make test-variants`). The program does not know the variable:
// whoever finds a CPU backend loaded uses it, so loading one first is enough.
#include <ggml-backend.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* plug_in = std::getenv("MOESTRO_TEST_GGML_CPU");
  if (plug_in != nullptr && ggml_backend_load(plug_in) == nullptr) {
    std::fprintf(stderr, "MOESTRO_TEST_GGML_CPU: ggml cannot use %s on this machine\n", plug_in);
    return 2;
  }
  return RUN_ALL_TESTS();
}
