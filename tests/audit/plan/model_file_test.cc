// Parameters counted from configurations, compared with the numbers that the models' authors
// published.
#include "audit/plan/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using plumbline::test::TempFolder;
using ::testing::HasSubstr;

absl::StatusOr<CountedModel> Count(const std::string& json) {
  const TempFolder folder;
  test::WriteFile(folder.File("config.json"), json);
  return ReadModel(folder.File("config.json"));
}

struct Published {
  const char* name;
  const char* config;
  double parameters, active, within;
};

class PublishedModels : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedModels, AreCounted) {
  const Published& p = GetParam();
  const auto model = Count(p.config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NEAR(model->shape.parameters / p.parameters, 1, p.within);
  EXPECT_NEAR(model->shape.active / p.active, 1, p.within);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedModels,
    ::testing::Values(
        Published{"gpt2",
                  R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
                      "n_positions": 1024, "vocab_size": 50257})",
                  124.44e6, 124.44e6, 0.002},
        Published{"falcon_7b",
                  R"({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
                      "num_attention_heads": 71, "multi_query": true, "vocab_size": 65024,
                      "max_position_embeddings": 2048, "ffn_hidden_size": 18176})",
                  6.92e9, 6.92e9, 0.002},
        Published{"llama2_7b",
                  R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
                      "max_position_embeddings": 4096, "tie_word_embeddings": false})",
                  6738415616., 6738415616., 0.001},
        Published{"llama3_8b",
                  R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8,
                      "intermediate_size": 14336, "vocab_size": 128256,
                      "max_position_embeddings": 8192})",
                  8030261248., 8030261248., 0.001},
        Published{"mixtral_8x7b",
                  R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8,
                      "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
                      "num_experts_per_tok": 2, "max_position_embeddings": 32768})",
                  46.7e9, 12.9e9, 0.005},
        Published{"qwen3_30b_a3b",
                  R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
                      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                      "intermediate_size": 6144, "moe_intermediate_size": 768,
                      "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
                      "mlp_only_layers": [], "vocab_size": 151936,
                      "max_position_embeddings": 40960, "tie_word_embeddings": false})",
                  30.5e9, 3.3e9, 0.02},
        Published{"deepseek_v3",
                  R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
                      "num_attention_heads": 128, "num_key_value_heads": 128,
                      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
                      "moe_intermediate_size": 2048, "n_routed_experts": 256,
                      "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_layer_freq": 1,
                      "first_k_dense_replace": 3, "vocab_size": 129280,
                      "max_position_embeddings": 163840})",
                  671e9, 37e9, 0.02}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(ModelFile, ThePartOfTheLanguageModelIsTaken) {
  const auto model = Count(
      R"({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 64,
          "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
          "vocab_size": 100, "max_position_embeddings": 32}})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->shape.layers, 2);
  EXPECT_EQ(model->shape.parameters, 2 * 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128));
}

TEST(ModelFile, WhatIsMissingIsNamed) {
  EXPECT_THAT(std::string(Count(R"({"hidden_size": 8})").status().message()),
              HasSubstr("expected \"num_hidden_layers\""));
  EXPECT_THAT(std::string(Count("[1]").status().message()), HasSubstr("expected a JSON object"));
  EXPECT_THAT(std::string(Count("{\"a\": ").status().message()), HasSubstr("at byte"));
  EXPECT_TRUE(absl::IsNotFound(ReadModel("/nowhere/config.json").status()));
}

// Any value at any position: an answer or a message, never a crash, a NaN or a negative value.
TEST(ModelFile, HostileValues) {
  const nlohmann::json base = nlohmann::json::parse(
      R"({"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 8, "v_head_dim": 8, "intermediate_size": 64,
          "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 1,
          "num_experts_per_tok": 2, "moe_layer_freq": 1, "first_k_dense_replace": 1,
          "vocab_size": 100, "max_position_embeddings": 32, "tie_word_embeddings": true})");
  for (const auto& [key, unused] : base.items()) {
    for (const char* value :
         {"null", "-1", "0", "1e308", "1e11", "\"x\"", "[]", "{}", "true", "0.5"}) {
      nlohmann::json config = base;
      config[key] = nlohmann::json::parse(value);
      const auto model = Count(config.dump());
      if (!model.ok()) continue;
      EXPECT_GE(model->shape.parameters, model->shape.active) << key << " " << value;
      EXPECT_GE(model->shape.active, 0) << key << " " << value;
      EXPECT_TRUE(std::isfinite(model->shape.parameters)) << key << " " << value;
    }
  }
}

}  // namespace
}  // namespace plumbline::audit
