// plumb fingerprint on a library of the tests and on the installed BLAS libraries.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "analysis/sums/contract.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"

namespace plumbline::audit {
namespace {

using testing::Ended;
using testing::RunPlumb;

Ended Take(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "fingerprint");
  return RunPlumb(arguments);
}

Ended Own(const std::string& function, std::vector<std::string> more) {
  more.insert(more.begin(), {"--library", FINGERPRINT_LIBRARY, "--function", function});
  return Take(more);
}

TEST(FingerprintCommandTest, PlainFunctions) {
  const auto sum = Own("plain_sum", {"--kind", "sum", "--n", "100", "--format", "json"});
  ASSERT_EQ(sum.status, 0) << sum.output << sum.errors;
  const auto json = nlohmann::json::parse(sum.output);
  EXPECT_EQ(json["verdict"], "verified");
  EXPECT_EQ(json["order"], "left fold of 100 terms");
  EXPECT_EQ(json["matches"], 250);
  const auto dot = Own("fused_dot", {"--kind", "dot", "--dtype", "f64", "--n", "60", "--tree"});
  ASSERT_EQ(dot.status, 0) << dot.output << dot.errors;
  EXPECT_NE(dot.output.find("left fold of 60 terms"), std::string::npos) << dot.output;
  EXPECT_NE(dot.output.find("f64 adds, nearest-even; products fused"), std::string::npos)
      << dot.output;
}

TEST(FingerprintCommandTest, AContractIsHeld) {
  const test::TempFolder folder;
  const std::string path = folder.File("contract.toml");
  ASSERT_EQ(Own("plain_sum", {"--kind", "sum", "--n", "64", "--output", path}).status, 0);
  const auto kept = Own("plain_sum", {"--kind", "sum", "--n", "64", "--hold", path, "--seed", "9"});
  EXPECT_EQ(kept.status, 0) << kept.errors;
  const auto broken =
      Own("fused_dot", {"--kind", "dot", "--dtype", "f64", "--n", "64", "--hold", path});
  EXPECT_EQ(broken.status, 1);
  EXPECT_NE(broken.errors.find(path + " is violated: "), std::string::npos) << broken.errors;
  std::filesystem::remove(path);
  const auto gone = Own("plain_sum", {"--kind", "sum", "--n", "64", "--hold", path});
  EXPECT_EQ(gone.status, 2);
  EXPECT_NE(gone.errors.find(path + ": cannot be read: "), std::string::npos) << gone.errors;
}

TEST(FingerprintCommandTest, ACrashIsReported) {
  const auto result = Own("crashes", {"--kind", "sum", "--n", "8"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.errors.find("crashes: expected results, found a crash: Aborted"),
            std::string::npos)
      << result.errors;
}

TEST(FingerprintCommandTest, NoOrderIsNoSuccess) {
  const auto result = Own("nothing", {"--kind", "sum", "--n", "8"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.output.find("no-order"), std::string::npos) << result.output;
}

TEST(FingerprintCommandTest, BadRequests) {
  const auto missing = Take({"--library", "libnone.so", "--function", "sdot"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.errors.find("--library: expected a shared library"), std::string::npos)
      << missing.errors;
  const auto symbol = Own("sdot", {});
  EXPECT_EQ(symbol.status, 2);
  EXPECT_NE(symbol.errors.find("expected a symbol sdot_ or cblas_sdot, found none"),
            std::string::npos)
      << symbol.errors;
  EXPECT_EQ(Own("plain_sum", {}).status, 2);
  EXPECT_EQ(Own("plain_sum", {"--kind", "sum", "--dtype", "i8"}).status, 2);
  EXPECT_EQ(Own("plain_sum", {"--kind", "sum", "--n", "1"}).status, 2);
  EXPECT_EQ(Take({"--function", "sdot"}).status, 2);
}

TEST(FingerprintCommandTest, TheContractIsReadAgain) {
  const test::TempFolder folder;
  const std::string path = folder.File("contract");
  const auto result = Own("plain_sum", {"--kind", "sum", "--n", "64", "--output", path});
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto contract = sums::ParseContract(test::ReadFile(path), path);
  ASSERT_TRUE(contract.ok()) << contract.status();
  EXPECT_EQ(contract->verdict, sums::Verdict::kVerified);
  EXPECT_EQ(contract->accumulator, "f32");
}

TEST(FingerprintCommandTest, ContractsThatHoldNothingAreRefused) {
  const test::TempFolder dir;
  const std::string sum = dir.File("sum.toml");
  ASSERT_EQ(Own("plain_sum", {"--kind", "sum", "--n", "64", "--output", sum}).status, 0);
  const auto audit = [&](const std::string& file) {
    return RunPlumb({"audit", dir.path(), "--contract", file});
  };
  auto result = audit(sum);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.errors.find("expected kind dot or gemm, found sum"), std::string::npos)
      << result.errors;
  result = audit(dir.File("none.toml"));
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.errors.find("none.toml: cannot be read: No such file or directory"),
            std::string::npos)
      << result.errors;
  const std::string damaged =
      dir.Write("damaged.toml", "schema = \"plumbline.contract/1\"\nx = 1\n");
  result = audit(damaged);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.errors.find("damaged.toml:1: expected function.name"), std::string::npos)
      << result.errors;
}

// The distribution's BLAS libraries, which tools/setup installs, each by its own path.
constexpr const char* kLibraries[] = {"openblas-pthread/libopenblas.so.0", "blas/libblas.so.3",
                                      "blis-pthread/libblis.so.4"};
class BlasTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(path())) << path() << ": tools/setup installs it";
  }
  static std::string path() { return std::string("/usr/lib/x86_64-linux-gnu/") + GetParam(); }
};

TEST_P(BlasTest, DotsAndProductsAreExplained) {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  for (const char* function : {"sdot", "ddot", "dsdot", "sgemv", "sgemm", "dgemm"}) {
    const auto result = Take({"--library", path(), "--function", function, "--n", "203", "--k",
                              "203", "--samples", "60"});
    EXPECT_EQ(result.status, 0) << function << "\n" << result.output << result.errors;
  }
}

// Another library under the same name: each library breaks the contract of the others.
TEST_P(BlasTest, ASwapOfLibrariesBreaksTheContract) {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  const test::TempFolder folder;
  const std::string contract = folder.File("swap.toml");
  const auto take = [&](const std::string& library, const char* how) {
    return Take({"--library", library, "--function", "sdot", "--n", "203", "--samples", "60", how,
                 contract});
  };
  ASSERT_EQ(take(path(), "--output").status, 0);
  EXPECT_EQ(take(path(), "--hold").status, 0);
  for (const char* other : kLibraries) {
    const std::string swapped = std::string("/usr/lib/x86_64-linux-gnu/") + other;
    if (swapped == path() || !std::filesystem::exists(swapped)) continue;
    const auto result = take(swapped, "--hold");
    EXPECT_EQ(result.status, 1) << other;
    EXPECT_NE(result.errors.find("order: held "), std::string::npos) << result.errors;
  }
}

// Dot products of length 203 as the library computes them, as a dump of a matrix product.
std::string DumpOfDots(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  using Dot = float (*)(const int*, const float*, const int*, const float*, const int*);
  const auto dot = handle == nullptr ? nullptr : reinterpret_cast<Dot>(dlsym(handle, "sdot_"));
  if (dot == nullptr) return "";
  const int m = 40, n = 203, one = 1;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> a(m * n), b(m * n), d;
  for (float& x : a) x = normal(rng);
  for (float& x : b) x = normal(rng);
  for (size_t i = 0; i < m; ++i) d.push_back(dot(&n, &a[i * n], &one, &b[i * n], &one));
  testing::Dump dump;
  dump.metadata = {{"kind", "matmul"}, {"layer", "head"}, {"step", "0"}};
  dump.tensors = {{"a", "F32", {m, n}, testing::Bytes(a)},
                  {"b", "F32", {m, n}, testing::Bytes(b)},
                  {"d", "F32", {m}, testing::Bytes(d)}};
  return dump.File();
}

// The same as a run: its products are checked against the contract of one library.
TEST_P(BlasTest, ARunIsHeldToTheContract) {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  const test::TempFolder dir;
  const std::string contract = dir.File("sdot.toml");
  ASSERT_EQ(Take({"--library", path(), "--function", "sdot", "--n", "203", "--samples", "60",
                  "--output", contract})
                .status,
            0);
  for (const char* other : kLibraries) {
    const std::string library = std::string("/usr/lib/x86_64-linux-gnu/") + other;
    const std::string bytes = DumpOfDots(library);
    ASSERT_FALSE(bytes.empty()) << library;
    const std::string dump = dir.Write("dots.safetensors", bytes);
    const auto audit = RunPlumb({"audit", dump, "--contract", contract, "--rules",
                                 "precision/contract", "--format", "json"});
    const auto report = nlohmann::json::parse(audit.output);
    if (library == path()) {
      EXPECT_EQ(audit.status, 0) << audit.output;
      EXPECT_NE(report["verdicts"][0]["reason"].get<std::string>().find("40 of 40 elements"),
                std::string::npos)
          << audit.output;
    } else {
      EXPECT_EQ(audit.status, 1) << audit.output << audit.errors;
      EXPECT_EQ(report["findings"][0]["cause"]["id"], "contract-broken");
      EXPECT_EQ(report["findings"][0]["strength"], "proved");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Installed, BlasTest, ::testing::ValuesIn(kLibraries));

}  // namespace
}  // namespace plumbline::audit
