// gpu_gemm --out DIR [--seconds S] [--only REGEX]: finds out how cuBLASLt's products are computed
// on this GPU.
//
// Writes fingerprints of a table of products, and dumps of random ones for plumb audit, which needs
// no GPU. Exit status 0: everything was probed that the library computes and the time allowed (the
// last line counts the rest); 1: an error; 77: there is no GPU, or no cuBLASLt.
#include <cuda_runtime_api.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <regex>

#include "bench/gpu/gemm/cublas_lt.h"
#include "bench/gpu/gemm/cublas_matmul.h"
#include "bench/gpu/gemm/gemm_run.h"
#include "command_line/usage.h"
#include "tests/support/gpu.h"

namespace plumbline::bench {
namespace {

struct Arguments {
  std::string out;
  std::string only;
  std::string library;
  RunLimits limits;
  bool list = false;
};

int Fail(const std::string& text) {
  std::fprintf(stderr, "gpu_gemm: %s\n", text.c_str());
  return 1;
}

int Skip(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  return test::kSkipped;
}

std::vector<Product> Chosen(const std::string& only) {
  std::vector<Product> chosen;
  const std::regex pattern(only);
  for (const Product& product : GemmTable()) {
    if (std::regex_search(NameOf(product), pattern)) chosen.push_back(product);
  }
  return chosen;
}

int List(const std::vector<Product>& products) {
  double seconds = 0;
  for (const Product& product : products) {
    seconds += EstimatedSeconds(product);
    std::printf("%-44s about %.2f s\n", NameOf(product).c_str(), EstimatedSeconds(product));
  }
  std::printf("%zu products, about %.0f s\n", products.size(), seconds);
  return 0;
}

std::string DeviceName() {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "";
}

int Query(const Arguments& arguments, const std::vector<Product>& products) {
  const std::string why_not = test::WhyNoGpu();
  if (!why_not.empty()) return Skip(why_not);
  const auto lt = OpenCublasLt(arguments.library);
  if (!lt.ok()) return Skip("no cuBLASLt: " + std::string(lt.status().message()));
  const auto matmuls = OpenCublasMatmuls(*lt, products);
  if (!matmuls.ok()) return Fail(std::string(matmuls.status().message()));
  Report report(arguments.out, (*matmuls)->name(), DeviceName());
  const absl::Status status =
      QueryAll(products, arguments.limits, matmuls->get(), &report, [](const std::string& line) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
      });
  std::printf("%zu products: %d asked, %d refused, %d not reached\n", products.size(),
              report.count(Outcome::kRequested), report.count(Outcome::kRefused),
              report.count(Outcome::kNotReached));
  return status.ok() ? 0 : Fail(std::string(status.message()));
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("What cuBLASLt's matrix products do inside.", "gpu_gemm");
  app.add_option("--out", arguments.out, "Folder for gemm.json, dumps/ and contracts/");
  app.add_option("--seconds", arguments.limits.seconds, "Of the whole run");
  app.add_option("--product-seconds", arguments.limits.each.seconds, "Of one product");
  app.add_option("--only", arguments.only, "Products whose names this regular expression finds");
  app.add_option("--library", arguments.library, "File of cuBLASLt, where the loader has none");
  app.add_flag("--list", arguments.list, "Print the products and what they are likely to take");
  try {
    app.parse(argc, argv);
    const std::vector<Product> products = Chosen(arguments.only);
    if (products.empty()) return Fail("--only: expected a part of a product's name (--list)");
    if (arguments.list) return List(products);
    if (arguments.out.empty()) return Fail("--out: expected a folder, found none");
    return Query(arguments, products);
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return Fail(UsageError(app, error));
  } catch (const std::regex_error& error) {
    return Fail(std::string("--only: ") + error.what());
  }
}

}  // namespace
}  // namespace plumbline::bench

int main(int argc, char** argv) { return plumbline::bench::Main(argc, argv); }
