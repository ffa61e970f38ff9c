#include "bench/gpu/gemm/gemm_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/sums/contract.h"
#include "bench/gpu/gemm/gemm_run.h"
#include "tests/bench/gpu/fake_matmul.h"
#include "tests/support/files.h"

namespace plumbline::bench {
namespace {

using ::testing::HasSubstr;

TEST(GemmReport, HoldsWhatWasRequestedAndWhatWasNot) {
  test::TempFolder folder;
  FakeLibrary library;
  int opened = 0;
  library.faults.open = [&] {
    return ++opened == 2 ? absl::UnimplementedError("no such product") : absl::OkStatus();
  };
  std::vector<Product> products(2, SmallProduct());
  products[1].output = DType::kBF16;
  std::vector<std::string> lines;
  Report report(folder.File("out"), library.name(), "none");
  const absl::Status status = QueryAll(products, {}, &library, &report,
                                       [&](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(status.ok()) << status;

  const auto json = nlohmann::json::parse(test::ReadFile(folder.File("out/gemm.json")));
  EXPECT_EQ(json["library"], "fake 1.2.3");
  EXPECT_EQ(json["asked"], 1);
  EXPECT_EQ(json["refused"], 1);
  const auto& first = json["products"][0];
  EXPECT_EQ(first["verdict"], "verified");
  EXPECT_EQ(first["matches"], first["samples"]);
  EXPECT_EQ(first["shape"], nlohmann::json({128, 128, 64}));
  EXPECT_EQ(first["algorithm"]["id"], 7);
  EXPECT_EQ(json["products"][1]["why"], "no such product");
  EXPECT_FALSE(test::ReadFile(folder.File("out/" + std::string(first["dump"]))).empty());
  const std::string contract = folder.File("out/" + std::string(first["contract"]));
  const auto parsed = sums::ParseContract(test::ReadFile(contract), contract);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->n, 64);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("verified 250/250"));
  EXPECT_THAT(lines[1], HasSubstr("refused: no such product"));
}

TEST(GemmReport, WhatTheTimeDidNotReachIsListed) {
  test::TempFolder folder;
  FakeLibrary library;
  RunLimits limits;
  limits.seconds = 0;
  Report report(folder.path(), library.name(), "none");
  ASSERT_TRUE(QueryAll({SmallProduct()}, limits, &library, &report, [](const auto&) {}).ok());
  EXPECT_EQ(report.count(Outcome::kNotReached), 1);
  const auto json = nlohmann::json::parse(test::ReadFile(folder.File("gemm.json")));
  EXPECT_EQ(json["products"][0]["why"], "the 0 s of the run were over");
}

TEST(GemmReport, FilesHaveALimit) {
  test::TempFolder folder;
  Report report(folder.path(), "fake", "none");
  Probed probed;
  probed.product = SmallProduct();
  probed.dump = std::string(Report::kMostFileBytes - 1, 'x');
  ASSERT_TRUE(report.Add(probed).ok());
  ASSERT_TRUE(report.Add(probed).ok());
  const auto json = nlohmann::json::parse(test::ReadFile(folder.File("gemm.json")));
  EXPECT_EQ(json["products"][0]["dump"], "dumps/f32-f32-32F-128x128x64.safetensors");
  EXPECT_THAT(std::string(json["products"][1]["dump"]), HasSubstr("left out"));
}

TEST(GemmReport, AFolderThatCannotBeMadeIsAnError) {
  test::TempFolder folder;
  folder.Write("file", "");
  Report report(folder.File("file"), "fake", "none");
  Probed probed;
  probed.product = SmallProduct();
  EXPECT_FALSE(report.Add(probed).ok());
}

TEST(GemmReport, AnErrorOfTheDeviceEndsTheRun) {
  test::TempFolder folder;
  FakeLibrary library;
  library.faults.call = [] { return absl::InternalError("gone"); };
  Report report(folder.path(), library.name(), "none");
  const absl::Status status = QueryAll({SmallProduct()}, {}, &library, &report, [](const auto&) {});
  EXPECT_EQ(status.message(), "f32-f32-32F-128x128x64: gone");
}

}  // namespace
}  // namespace plumbline::bench
