module.exports = () => "World";
