module.exports = ({ vars, provider }) => `Built: ${vars.text} for ${provider.id}`
