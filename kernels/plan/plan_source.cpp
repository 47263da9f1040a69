#include "plan_source.hpp"

#include <sstream>

namespace mscclpp::kernels {

namespace {

using plan::BlockLists;
using plan::Operand;
using plan::Operation;

/// Whether two blocks have operations of the same shape.
bool haveSameShape(const BlockLists& a, const BlockLists& b) {
  if (a.operations.size() != b.operations.size() || a.operands.size() != b.operands.size() ||
      a.references.size() != b.references.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.operations.size(); ++i) {
    Operation left = a.operations[i];
    Operation right = b.operations[i];
    left.position = right.position = left.share = right.share = left.index = right.index = 0;
    left.origin = right.origin = -1;
    if (!(left == right)) return false;
  }
  for (std::size_t i = 0; i < a.operands.size(); ++i) {
    Operand left = a.operands[i];
    Operand right = b.operands[i];
    left.rank = right.rank = left.channel = right.channel = 0;
    left.first = right.first = 0;
    if (!(left == right)) return false;
  }
  return true;
}

/// The values in which blocks of one shape may differ.
std::vector<long> valuesOf(const BlockLists& block) {
  std::vector<long> values;
  for (const Operation& operation : block.operations)
    values.insert(values.end(), {operation.position, operation.share, operation.index});
  for (const Operand& operand : block.operands)
    values.insert(values.end(), {operand.rank, operand.channel, operand.first});
  values.insert(values.end(), block.references.begin(), block.references.end());
  return values;
}

std::vector<long> stepsBetween(const BlockLists& first, const BlockLists& second) {
  std::vector<long> steps = valuesOf(second);
  const std::vector<long> from = valuesOf(first);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] -= from[i];
  return steps;
}

const char* typeName(DataType type) {
  switch (type) {
    case DataType::INT8:
      return "std::int8_t";
    case DataType::UINT8:
      return "std::uint8_t";
    case DataType::INT16:
      return "std::int16_t";
    case DataType::UINT16:
      return "std::uint16_t";
    case DataType::INT32:
      return "std::int32_t";
    case DataType::UINT32:
      return "std::uint32_t";
    case DataType::INT64:
      return "std::int64_t";
    case DataType::UINT64:
      return "std::uint64_t";
    case DataType::FLOAT16:
      return "mscclpp::f16";
    case DataType::BFLOAT16:
      return "mscclpp::bf16";
    case DataType::FLOAT64:
      return "double";
    case DataType::FLOAT8_E4M3FN:
      return "mscclpp::f8e4m3";
    case DataType::FLOAT8_E5M2:
      return "mscclpp::f8e5m2";
    default:
      return "float";
  }
}

const char* operatorName(ReduceOp op) {
  switch (op) {
    case ReduceOp::PROD:
      return "Product";
    case ReduceOp::MAX:
      return "Max";
    case ReduceOp::MIN:
      return "Min";
    case ReduceOp::AVG:
      return "Average";
    default:
      return "Sum";
  }
}

std::ostream& operator<<(std::ostream& out, const plan::Range& range) {
  return out << "{" << range.first << ", " << range.count << "}";
}

void write(std::ostream& out, const Operation& operation) {
  out << "{OperationKind(" << static_cast<int>(operation.kind) << "), " << (operation.relaxed ? "true" : "false")
      << ", " << (operation.completes ? "true" : "false") << ", " << operation.chunks << ", " << operation.position
      << ", " << operation.sources << ", " << operation.destinations << ", " << operation.references << ", "
      << operation.index << ", " << operation.blocks << ", " << operation.share << ", " << operation.shares << ", "
      << operation.unitBytes << "ull}";
}
void write(std::ostream& out, const Operand& operand) {
  out << "{BufferKind(" << static_cast<int>(operand.buffer) << "), Form(" << static_cast<int>(operand.form)
      << "), Access(" << static_cast<int>(operand.access) << "), " << operand.rank << ", " << operand.channel << ", "
      << operand.first << "}";
}
void write(std::ostream& out, std::int32_t reference) {
  out << reference;
}

template <class Entry>
void writeArray(std::ostream& out, const char* type, const char* name, const std::vector<Entry>& entries,
                const Entry& unused) {
  out << "  static constexpr " << type << " " << name << "[] = {";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    out << (i == 0 ? "\n    " : ",\n    ");
    write(out, entries[i]);
  }
  if (entries.empty()) write(out, unused);
  out << "};\n";
}

/// What to add to the lists of the first block of a role for each further one.
BlockLists stepLists(const BlockLists& first, const std::vector<long>& steps) {
  BlockLists lists = first;
  auto step = steps.begin();
  const auto next = [&] { return step == steps.end() ? 0 : *step++; };
  for (Operation& operation : lists.operations) {
    operation = {};
    operation.position = static_cast<std::int32_t>(next());
    operation.share = static_cast<std::int16_t>(next());
    operation.index = static_cast<std::int32_t>(next());
  }
  for (Operand& operand : lists.operands) {
    operand = {};
    operand.rank = static_cast<std::int16_t>(next());
    operand.channel = static_cast<std::int16_t>(next());
    operand.first = static_cast<std::int32_t>(next());
  }
  for (std::int32_t& reference : lists.references) reference = static_cast<std::int32_t>(next());
  return lists;
}

void writeRole(std::ostream& out, const plan::RankProgram& program, const RoleBlocks& role, std::size_t number) {
  const auto& blocks = program.blocks;
  const BlockLists& first = blocks[static_cast<std::size_t>(role.first)];
  const std::vector<long> steps = role.count > 1 ? stepsBetween(first, blocks[static_cast<std::size_t>(role.first) + 1])
                                                 : std::vector<long>(valuesOf(first).size());
  const BlockLists added = stepLists(first, steps);
  out << "struct Role" << number << " {\n  static constexpr int firstBlock = " << role.first
      << ";\n  static constexpr int blocks = " << role.count
      << ";\n  static constexpr int operationCount = " << first.operations.size() << ";\n";
  writeArray(out, "Operation", "operations", first.operations, {});
  writeArray(out, "Operation", "operationSteps", added.operations, {});
  writeArray(out, "Operand", "operands", first.operands, {});
  writeArray(out, "Operand", "operandSteps", added.operands, {});
  writeArray(out, "std::int32_t", "references", first.references, std::int32_t{0});
  writeArray(out, "std::int32_t", "referenceSteps", added.references, std::int32_t{0});
  out << "};\n";
}

}  // namespace

std::vector<RoleBlocks> rolesOf(const plan::RankProgram& program) {
  std::vector<RoleBlocks> roles;
  std::vector<long> steps;
  const auto& blocks = program.blocks;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (!roles.empty() && haveSameShape(blocks[b - 1], blocks[b])) {
      const std::vector<long> next = stepsBetween(blocks[b - 1], blocks[b]);
      if (roles.back().count == 1 || next == steps) {
        steps = next;
        ++roles.back().count;
        continue;
      }
    }
    roles.push_back({static_cast<int>(b), 1});
  }
  return roles;
}

int transfersOf(const plan::RankProgram& program) {
  int transfers = 0;
  for (const RoleBlocks& role : rolesOf(program)) {
    for (const Operation& operation : program.blocks[static_cast<std::size_t>(role.first)].operations)
      transfers += operation.kind == plan::OperationKind::Transfer ? 1 : 0;
  }
  return transfers;
}

std::string sourceOf(const plan::RankProgram& program, const PlanVariant& variant) {
  std::ostringstream out;
  out << "#include <mscclpp/arch/launch.hpp>\n#include <mscclpp/plan/specialised.hpp>\n"
         "namespace mscclpp::plan {\n"
         "struct Shape {\n  static constexpr std::int32_t chunksPerPart = "
      << variant.chunksPerPart << ";\n  static constexpr int format = " << static_cast<int>(variant.format)
      << ";\n};\n";
  const std::vector<RoleBlocks> roles = rolesOf(program);
  for (std::size_t r = 0; r < roles.size(); ++r) writeRole(out, program, roles[r], r);
  out << "__global__ void __launch_bounds__(" << variant.threads
      << ", 1) rankKernel(const __grid_constant__ ExecutionArgs args) {\n"
         "  arch::waitForPrerequisites();\n  arch::launchDependents();\n"
         "  executeRoles<"
      << typeName(variant.type) << ", " << operatorName(variant.op) << ", Shape";
  for (std::size_t r = 0; r < roles.size(); ++r) out << ", Role" << r;
  out << ">(gpu::LinearGrid(), args);\n}\n}\n";
  return out.str();
}

}  // namespace mscclpp::kernels
