// SPDX-License-Identifier: Apache-2.0
// Every choice and every refusal, with what is needed and what there is, against tables that
// make_oracle.py derives from its own statement of the backends' rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda_moe/plan.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "fewbit/selection.hpp"
#include "paths.hpp"
#include "select/decide_layer.hpp"
#include "select/problem_list.hpp"
#include "select/rank_problem.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<NamedProblem> read_problems(const char* file) {
  const std::string path = (tests::source_dir() / "tests/problems" / file).string();
  auto parsed = parse_problems(read_file(path), path);
  EXPECT_TRUE(parsed) << parsed.error().message();
  return parsed ? *std::move(parsed) : std::vector<NamedProblem>{};
}
const std::vector<NamedProblem>& problems() {
  static const std::vector<NamedProblem> list = read_problems("models.txt");
  return list;
}

// problem, device, spread, choice, refusals; only the last is quoted, and only as a whole.
using Row = std::array<std::string, 5>;
std::vector<Row> read_table(const std::string& engine) {
  std::istringstream lines(
      read_file((tests::source_dir() / "tests/oracle" / (engine + ".csv")).string()));
  std::vector<Row> rows;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    Row row;
    std::istringstream cells(line);
    for (std::size_t i = 0; i < 4; ++i) std::getline(cells, row[i], ',');
    std::getline(cells, row[4]);
    if (row[4].starts_with('"')) row[4] = row[4].substr(1, row[4].size() - 2);
    rows.push_back(row);
  }
  return rows;
}

Parallel parse_spread(const std::string& text) {
  Parallel parallel;
  std::istringstream words(text);
  std::string word;
  std::getline(words, word, '/');
  parallel.tensor = std::stoi(word);
  std::getline(words, word, '/');
  parallel.expert = std::stoi(word);
  std::getline(words, word);
  parallel.exchange = exchange_from_name(word).value();
  return parallel;
}

// "8/1/none 4x240+4x224": the ranks, and what they have of intermediate_size.
std::pair<std::string, std::string> spread_and_shares(const std::string& cell) {
  const std::size_t space = std::min(cell.find(' '), cell.size());
  return {cell.substr(0, space), cell.substr(std::min(space + 1, cell.size()))};
}

// As explain deals them: for the chosen backend, or in the smallest unit.
std::string shares_words(const MoeProblem& whole, const Parallel& parallel,
                         const DeviceInfo& device, Engine engine, const std::string& chosen) {
  const std::int64_t unit =
      chosen.empty() ? 0 : spread_of(*find_backend(chosen), whole, device, parallel).unit;
  const auto shares = rank_shares(whole, parallel, dealing_of(engine, whole), unit);
  EXPECT_TRUE(shares);
  std::map<std::int64_t, int, std::greater<>> counts;
  for (const std::int64_t size : shares->intermediate_size) ++counts[size];
  std::string text;
  for (const auto& [size, count] : counts) {
    text += (text.empty() ? "" : "+") + std::to_string(count) + "x" + std::to_string(size);
  }
  return text;
}

// The table's words: what is needed, and what the layer has without the details in brackets.
std::string word_of(const Refusal& refusal) {
  return std::string(reason_name(refusal.reason)) + ": needs " + refusal.needs + ", has " +
         refusal.has.substr(0, refusal.has.find(" ("));
}

std::string words_of(const std::vector<Refusal>& refusals) {
  std::vector<std::string> words;
  words.reserve(refusals.size());
  for (const Refusal& refusal : refusals) words.push_back(word_of(refusal));
  std::ranges::sort(words);
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " / ") + word;
  return text;
}

// "name=reasons | name=reasons"
std::map<std::string, std::string> cells_of(const std::string& refusals) {
  std::map<std::string, std::string> cells;
  for (std::size_t from = 0; from < refusals.size();) {
    const std::size_t end = std::min(refusals.find(" | ", from), refusals.size());
    const std::size_t equals = refusals.find('=', from);  // the first: needs have some too
    cells[refusals.substr(from, equals - from)] = refusals.substr(equals + 1, end - equals - 1);
    from = end + 3;
  }
  return cells;
}

// "768 in runs of 128": both numbers stand in the error, "6 runs of 128,".
testing::Matcher<const std::string&> says_what_is_dealt(const std::string& words) {
  const std::size_t at = words.find(" in ");
  return testing::AllOf(testing::HasSubstr(" share " + words.substr(0, at) + " intermediate"),
                        testing::HasSubstr(words.substr(at + 4) + ","));
}

void check_row(Engine engine, const std::vector<NamedProblem>& problems, const Row& row) {
  SCOPED_TRACE(row[0] + " on " + row[1] + ", " + row[2]);
  const auto whole = find_problem(problems, row[0]);
  ASSERT_TRUE(whole) << whole.error().message();
  const auto [spread, shares] = spread_and_shares(row[2]);
  const Parallel parallel = parse_spread(spread);
  const auto possible = rank_problem(*whole, parallel, dealing_of(engine, *whole));
  if (shares == "not dealt") {
    ASSERT_FALSE(possible);
    EXPECT_THAT(possible.error().what, says_what_is_dealt(row[4]));
    return;
  }
  ASSERT_TRUE(possible) << possible.error().message();
  auto device = describe_device(row[1]);
  ASSERT_TRUE(device) << device.error().message();
  // Of every build, that of this test too.
  device->built_for = {"generic", "neon", "avx2", "avx512", "amx", "sm_90a"};
  const auto decision = decide_layer(*whole, parallel, *device, {.backend = "", .engine = engine});
  ASSERT_TRUE(decision) << decision.error().message();
  const std::string& chosen = decision->selection.chosen;
  EXPECT_EQ(decision->refused ? "-" : chosen, row[3]);
  if (!shares.empty()) {
    EXPECT_EQ(shares_words(*whole, parallel, *device, engine, chosen), shares);
  }
  std::map<std::string, std::string> expected = cells_of(row[4]);
  for (const Candidate& candidate : decision->selection.candidates) {
    const auto cell = expected.find(candidate.backend);
    if (cell == expected.end()) {
      // What the engine would not ask for such a layer is never chosen by itself.
      EXPECT_FALSE(candidate.only_forced.empty()) << candidate.backend;
      continue;
    }
    EXPECT_EQ(words_of(candidate.refusals), cell->second) << candidate.backend;
    expected.erase(cell);
  }
  EXPECT_TRUE(expected.empty()) << "not asked: " << expected.begin()->first;
}

void check_table(Engine engine, const std::string& name, std::size_t least,
                 const std::vector<NamedProblem>& of = problems()) {
  const std::vector<Row> rows = read_table(name);
  EXPECT_GE(rows.size(), least);
  for (const Row& row : rows) check_row(engine, of, row);
}

// Whether the streaming CUDA kernel could take the layer, and why not.
TEST(Oracle, TheCudaKernelFitsWhereItsTableSays) {
  std::istringstream lines(read_file((tests::source_dir() / "tests/oracle/cuda_moe.csv").string()));
  std::string line;
  std::getline(lines, line);
  int rows = 0;
  for (; std::getline(lines, line); ++rows) {
    SCOPED_TRACE(line);
    std::istringstream cells(line);
    std::string name, on, tokens, verdict;
    std::getline(cells, name, ',');
    std::getline(cells, on, ',');
    std::getline(cells, tokens, ',');
    std::getline(cells, verdict);
    if (verdict.starts_with('"')) verdict = verdict.substr(1, verdict.size() - 2);
    const auto problem = find_problem(problems(), name);
    const auto device = describe_device(on);
    ASSERT_TRUE(problem && device);
    Scheme scheme = problem->gate_up;
    scheme.act_order = ActOrder::none;  // the sizes alone count here
    const auto format = cuda::cells_of(scheme);
    ASSERT_TRUE(format);
    const auto plan = cuda::plan_stream(
        *format,
        {.tokens = std::stoll(tokens),
         .top_k = problem->top_k,
         .experts = problem->num_experts,
         .hidden_size = problem->hidden_size,
         .intermediate_size = problem->intermediate_size},
        {.sm_count = device->sm_count, .shared_memory_bytes = device->shared_memory_bytes});
    EXPECT_EQ(plan ? "fits" : plan.error().what, verdict);
  }
  EXPECT_GE(rows, 500);
}

TEST(Oracle, FewbitChoosesAndRefusesAsItsTableSays) { check_table(Engine::fewbit, "fewbit", 1500); }
TEST(Oracle, FewbitChoosesForItsOwnKindsAsTheirTableSays) {
  check_table(Engine::fewbit, "fewbit_kinds", 150, read_problems("own_kinds.txt"));
}
TEST(Oracle, VllmChoosesAndRefusesAsItsTableSays) { check_table(Engine::vllm, "vllm", 1500); }
TEST(Oracle, SglangChoosesAndRefusesAsItsTableSays) { check_table(Engine::sglang, "sglang", 300); }
TEST(Oracle, FlashInferChoosesAndRefusesAsItsTableSays) {
  check_table(Engine::flashinfer, "flashinfer", 250);
}

}  // namespace
}  // namespace fewbit
