// SPDX-License-Identifier: Apache-2.0
#include "scheme/kept_files.hpp"

#include <gtest/gtest.h>

namespace fewbit {
namespace {

TEST(KeptFiles, AreConfigsTokenizersTemplatesAndLicences) {
  for (const char* name : {"config.json",
                           "generation_config.json",
                           "params.json",
                           "hf_quant_config.json",
                           "quantize_config.json",
                           "quant_config.json",
                           "gptq_config.json",
                           "preprocessor_config.json",
                           "tokenizer.json",
                           "tokenizer_config.json",
                           "tokenizer.model",
                           "tokenizer.model.v3",
                           "tokenization_kimi.py",
                           "special_tokens_map.json",
                           "added_tokens.json",
                           "vocab.json",
                           "vocab.txt",
                           "vocab.bpe",
                           "merges.txt",
                           "spiece.model",
                           "sentencepiece.bpe.model",
                           "tiktoken.model",
                           "qwen.tiktoken",
                           "tekken.json",
                           "chat_template.jinja",
                           "chat_template.json",
                           "LICENSE",
                           "LICENSE.txt",
                           "LICENCE.md",
                           "MODEL_LICENSE",
                           "NOTICE",
                           "Notice.txt",
                           "COPYING",
                           "THIRD_PARTY_NOTICES.md",
                           "USE_POLICY.md"}) {
    EXPECT_TRUE(is_kept_file(name)) << name;
  }
}

TEST(KeptFiles, AreNoTextsOrScriptsOfTheSource) {
  for (const char* name :
       {"README.md", "readme.txt", "MODEL_CARD.md", "CHANGELOG.md", "val.txt", "train.py",
        "modeling_deepseek.py", "recipe.yaml", "model.safetensors.index.json", "figure.png",
        "results.json", "training_args.json", "Makefile", "tokens.txt", ""}) {
    EXPECT_FALSE(is_kept_file(name)) << name;
  }
}

}  // namespace
}  // namespace fewbit
